//! The 90 symbols of text: padding, begin, end, 86 characters in FedJAX's (and TensorFlow Federated's) order, and "another".

/// Fills up the last chunk of a client; never a target that counts.
pub const PAD: u8 = 0;
/// Begins a snippet.
pub const BEGIN: u8 = 1;
/// Ends a snippet.
pub const END: u8 = 2;
/// Stands for every character that has no symbol of its own.
pub const OTHER: u8 = 89;
/// How many symbols there are.
pub const SIZE: usize = 90;
/// The characters that have a symbol, in order, the first being [`FIRST_CHARACTER`].
pub const CHARACTERS: &str = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r";
/// The symbol of the first of [`CHARACTERS`].
pub const FIRST_CHARACTER: u8 = 3;

/// The symbol of a character.
///
/// ```
/// use fedeq_data::source::vocabulary::{OTHER, symbol};
/// assert_eq!(symbol('d'), 3);
/// assert_eq!(symbol('é'), OTHER);
/// ```
pub fn symbol(character: char) -> u8 {
    *SYMBOLS.get(character as usize).unwrap_or(&OTHER)
}

/// The character of a symbol, unless it stands for none.
pub fn character(symbol: u8) -> Option<char> {
    let index = symbol.checked_sub(FIRST_CHARACTER)?;
    CHARACTERS.as_bytes().get(usize::from(index)).map(|&byte| byte.into())
}

/// The symbol of each ASCII character.
const SYMBOLS: [u8; 128] = {
    let mut symbols = [OTHER; 128];
    let mut index = 0;
    while index < CHARACTERS.len() {
        symbols[CHARACTERS.as_bytes()[index] as usize] = FIRST_CHARACTER + index as u8;
        index += 1;
    }
    symbols
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_characters_fill_the_symbols_between_end_and_other() {
        assert_eq!(CHARACTERS.chars().count(), 86);
        assert_eq!(FIRST_CHARACTER, END + 1);
        assert_eq!(usize::from(OTHER), SIZE - 1);
        assert_eq!(symbol('\r'), OTHER - 1);
    }

    #[test]
    fn symbols_and_characters_are_each_others_inverse() {
        for c in CHARACTERS.chars() {
            assert_eq!(character(symbol(c)), Some(c));
        }
        for special in [PAD, BEGIN, END, OTHER, 255] {
            assert_eq!(character(special), None);
        }
    }
}
