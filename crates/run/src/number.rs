//! Numbers as people read them.

/// With separated thousands: `50,000`.
pub fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and what is counted: `1 client`, `2 clients`.
pub fn counted(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// A share as a percentage: `97.2 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// In thousands of bytes and upwards: `170 MB`.
pub fn bytes(number: u64) -> String {
    if number == 0 {
        return "0 kB".into();
    }
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut amount = number as f64 / 1e3;
    let mut unit = 0;
    while amount >= 999.5 && unit + 1 < UNITS.len() {
        amount /= 1e3;
        unit += 1;
    }
    if amount < 9.95 { format!("{amount:.1} {}", UNITS[unit]) } else { format!("{amount:.0} {}", UNITS[unit]) }
}

/// Bytes as a person types them: `16MB`, `2.5GB`; nothing where it is no such thing.
///
/// ```
/// use fedeq_run::number::parse_bytes;
/// assert_eq!((parse_bytes("16MB"), parse_bytes("2.5GB")), (Some(16_000_000), Some(2_500_000_000)));
/// assert_eq!((parse_bytes("16"), parse_bytes("-1MB"), parse_bytes("MB")), (None, None, None));
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)];
    let (number, unit) = units.into_iter().find_map(|(name, size)| Some((text.strip_suffix(name)?, size)))?;
    let is_plain = number.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    let amount = number.parse::<f64>().ok().filter(|amount| is_plain && amount.is_finite())?;
    Some((amount * unit) as u64)
}

/// A time to wait: `40 s`, `12 min`, `3.5 h`, `12 days`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 99.5 => format!("{short:.0} s"),
        medium if medium < 99.5 * 60.0 => format!("{:.0} min", medium / 60.0),
        long if long < 99.5 * 3600.0 => format!("{:.1} h", long / 3600.0),
        longest => format!("{} days", count((longest / 86_400.0).round() as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 40_983, 1_234_567].map(count), ["0", "999", "1,000", "40,983", "1,234,567"]);
    }

    #[test]
    fn bytes_have_two_or_three_digits() {
        assert_eq!([0, 512, 9_949, 170_052_171, 999_999_999].map(bytes), ["0 kB", "0.5 kB", "9.9 kB", "170 MB", "1.0 GB"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!([40.0, 720.0, 12_600.0, 864_000.0].map(duration), ["40 s", "12 min", "3.5 h", "10 days"]);
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!((counted(1, "client"), counted(2, "client")), ("1 client".into(), "2 clients".into()));
    }
}
