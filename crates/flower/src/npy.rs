//! Arrays of 32-bit floats, and of bytes, in numpy's format: `.npy`, version 1.
use fedeq_core::Array;

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// The data begins after at most so many bytes.
pub const LONGEST_HEADER: usize = MAGIC.len() + 2 + u16::MAX as usize;
/// Header and magic together fill a multiple of this.
const ALIGNMENT: usize = 64;

/// Kinds of numbers, as numpy names them.
const FLOATS: &str = "<f4";
const BYTES: &str = "|u1";

/// The file's bytes, the same that `numpy.save` gives.
pub fn write(array: &Array) -> Vec<u8> {
    let mut bytes = begun(FLOATS, &array.shape);
    bytes.extend(array.values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// The file of an array of bytes.
pub fn write_bytes(data: &[u8]) -> Vec<u8> {
    let mut bytes = begun(BYTES, &[data.len()]);
    bytes.extend(data);
    bytes
}

/// All of a file but its data.
fn begun(kind: &str, shape: &[usize]) -> Vec<u8> {
    let header = padded(&format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {}, }}", tuple(shape)));
    [MAGIC, &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat()
}

/// Reads what [`write()`] or `numpy.save` wrote. The error says what is wrong.
pub fn read(bytes: &[u8]) -> Result<Array, String> {
    let (shape, data) = opened(bytes, FLOATS, "of 32-bit floats")?;
    if size(&shape).ok_or("its shape is too large")? != data.len() {
        return Err(format!("its shape is {}, but it has {} bytes of data", tuple(&shape), data.len()));
    }
    let values = data.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    Ok(Array::new(shape, values))
}

/// Reads what [`write_bytes`] wrote.
pub fn read_bytes(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (shape, data) = opened(bytes, BYTES, "of bytes")?;
    if shape == [data.len()] {
        return Ok(data.to_vec());
    }
    Err(format!("its shape is {}, but it has {} bytes of data", tuple(&shape), data.len()))
}

/// The shape and the data of a file.
fn opened<'a>(bytes: &'a [u8], kind: &str, what: &str) -> Result<(Vec<usize>, &'a [u8]), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not in numpy's format (.npy, version 1)")?;
    let (length, rest) = rest.split_first_chunk().ok_or("it ends within its header")?;
    let (header, data) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or("it ends within its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    Ok((shape_of(header, kind, what)?, data))
}

/// The size of an array in bytes; nothing if that overflows.
pub(crate) fn size(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(4_usize, |product, &side| product.checked_mul(side))
}

/// A header, padded with spaces to the alignment of the data.
fn padded(header: &str) -> String {
    let used = MAGIC.len() + 2 + header.len() + 1;
    let spaces = (ALIGNMENT - used % ALIGNMENT) % ALIGNMENT;
    format!("{header}{}\n", " ".repeat(spaces))
}

/// A shape as Python writes a tuple.
pub(crate) fn tuple(shape: &[usize]) -> String {
    match shape {
        [side] => format!("({side},)"),
        sides => format!("({})", sides.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Reads the shape out of a header, which must be of this kind of numbers in row-major order.
fn shape_of(header: &str, kind: &str, what: &str) -> Result<Vec<usize>, String> {
    let plain = header.replace(' ', "");
    let require = |part: &str, what: &str| if plain.contains(part) { Ok(()) } else { Err(format!("it is not {what}")) };
    require(&format!("'descr':'{kind}'"), what)?;
    require("'fortran_order':False", "in row-major order")?;
    let shape = plain.split_once("'shape':(").and_then(|(_, rest)| rest.split_once(')')).ok_or("it has no shape")?.0;
    let side = |text: &str| text.parse().map_err(|_| format!("its shape contains `{text}`, which is not a length"));
    shape.split(',').filter(|text| !text.is_empty()).map(side).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![0], vec![3], vec![2, 1, 3]] {
            let count = shape.iter().product::<usize>();
            let array = Array::new(shape, (0..count).map(|index| index as f32 - 0.5).collect());
            assert_eq!(read(&write(&array)), Ok(array));
        }
    }

    #[test]
    fn bytes_are_read_and_not_taken_for_numbers() {
        for bytes in [&[][..], &[0], &[1, 2, 3, 4, 255]] {
            assert_eq!(read_bytes(&write_bytes(bytes)).as_deref(), Ok(bytes));
            assert_eq!(read(&write_bytes(bytes)), Err("it is not of 32-bit floats".into()));
        }
        assert_eq!(read_bytes(&write(&Array::new(vec![1], vec![1.0]))), Err("it is not of bytes".into()));
        assert!(read_bytes(&write_bytes(&[7; 9])[..130]).is_err());
    }

    #[test]
    fn data_begins_where_numpy_has_it() {
        assert_eq!(write(&Array::new(vec![1], vec![1.0])).len(), 128 + 4);
    }

    #[test]
    fn a_truncated_file_is_refused() {
        let whole = write(&Array::new(vec![2, 3], vec![1.0; 6]));
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_shape_beyond_all_memory_is_refused() {
        let header = padded(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({0}, {0}), }}", usize::MAX));
        let bytes = [MAGIC, &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        assert_eq!(read(&bytes), Err("its shape is too large".into()));
    }
}
