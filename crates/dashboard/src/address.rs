//! Where a dashboard is to be found, and the token that opens it.
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use subtle::ConstantTimeEq;

/// A secret that opens a dashboard. It does not show itself in debug output.
#[derive(Clone)]
pub struct Token(String);

/// Fewer characters could be tried one after the other.
const SHORTEST: usize = 8;

impl Token {
    /// One that nobody can guess.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Whether somebody knows it; how long that takes does not depend on how much of it is right.
    pub(super) fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

impl FromStr for Token {
    type Err = String;

    /// It travels in addresses and cookies, and must mean the same there.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        if is_plain && text.len() >= SHORTEST {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("give at least {SHORTEST} letters, digits, `-` and `_`"))
    }
}

/// Where a dashboard is to be found.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub SocketAddr);

impl Address {
    /// What to open in a browser.
    pub fn url(self, token: Option<&Token>) -> String {
        let host = if self.0.ip().is_unspecified() { "localhost".into() } else { host(self.0.ip()) };
        let query = token.map_or_else(String::new, |token| format!("?token={}", token.reveal()));
        format!("http://{host}:{}/{query}", self.0.port())
    }
}

/// An address as it stands in a URL.
pub(super) fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_plain_and_never_shown() {
        assert!("short".parse::<Token>().is_err() && "with space".parse::<Token>().is_err());
        let token: Token = "correct-horse".parse().expect("plain");
        assert!(token.is("correct-horse") && !token.is("correct-hors") && !token.is("correct-horsf"));
        assert!(!format!("{token:?}").contains("horse"));
        assert_ne!(Token::random().expect("randomness").reveal(), Token::random().expect("randomness").reveal());
    }

    #[test]
    fn urls_can_be_opened() {
        let url = |text: &str| Address(text.parse().expect("an address")).url(None);
        assert_eq!(url("127.0.0.1:80"), "http://127.0.0.1:80/");
        assert_eq!(url("0.0.0.0:80"), "http://localhost:80/");
        assert_eq!(url("[::1]:80"), "http://[::1]:80/");
    }
}
