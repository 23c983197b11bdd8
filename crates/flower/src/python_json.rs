//! JSON to the byte as Python's `json.dumps` writes it: ids are hashes of it.
use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// A space after every comma and colon; everything beyond ASCII escaped.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for character in fragment.chars() {
            if character.is_ascii() {
                writer.write_all(&[character as u8])?;
                continue;
            }
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// The bytes.
pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Python);
    value.serialize(&mut serializer).expect("plain values can be written to memory");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_escapes_are_pythons() {
        // python3 -c 'import json; print(json.dumps({"a": [1, 2], "ä\U0001f600": "x\ny"}))'
        let value = serde_json::json!({ "a": [1, 2], "ä😀": "x\ny" });
        assert_eq!(to_json(&value), br#"{"a": [1, 2], "\u00e4\ud83d\ude00": "x\ny"}"#);
    }
}
