//! All arrays of a message packed into one.
//!
//! Flower transfers every array as several objects, each with a call of its own: a network of twenty arrays would take fifty calls a message, and a
//! round would mostly wait for them. So weights are sent as one array of all numbers, with their names and shapes as text.
use fedeq_core::{Array, Params};

use crate::{Error, Result};

/// The name of the one array.
pub(crate) const PACKED: &str = "packed";

/// Names and shapes of arrays, in the order of their numbers.
pub type Layout = Vec<(String, Vec<usize>)>;

/// The names and shapes of arrays.
pub(crate) fn layout_of(params: &Params) -> Layout {
    params.iter().map(|(name, array)| (name.to_owned(), array.shape.clone())).collect()
}

/// Names and shapes as JSON.
pub(crate) fn layout_text(layout: &Layout) -> String {
    serde_json::to_string(layout).expect("names and numbers can be written to memory")
}

/// Reads what [`layout_text`] wrote.
pub(crate) fn read_layout(text: &str) -> Result<Layout> {
    serde_json::from_str(text).map_err(|error| Error::record(PACKED, format!("its layout is malformed: {error}")))
}

/// All numbers as one array, and their names and shapes as JSON.
pub(crate) fn pack(params: &Params) -> (Params, String) {
    let numbers: Vec<f32> = params.iter().flat_map(|(_, array)| array.values.iter().copied()).collect();
    let packed = [(PACKED.to_owned(), Array::new(vec![numbers.len()], numbers))].into_iter().collect();
    (packed, layout_text(&layout_of(params)))
}

/// The arrays again.
pub(crate) fn unpack(packed: &Params, layout: &str) -> Result<Params> {
    let refuse = |problem: String| Error::record(PACKED, problem);
    let layout = read_layout(layout)?;
    let array = packed.get(PACKED).ok_or_else(|| refuse("the message has no such array".into()))?;
    let mut left = &array.values[..];
    let mut arrays: Vec<(String, Array)> = Vec::with_capacity(layout.len());
    for (name, shape) in layout {
        let size = shape.iter().try_fold(1usize, |size, extent| size.checked_mul(*extent));
        let (values, rest) = size
            .and_then(|size| left.split_at_checked(size))
            .ok_or_else(|| refuse(format!("it has too few numbers for `{name}`")))?;
        arrays.push((name, Array::new(shape, values.to_vec())));
        left = rest;
    }
    let count = arrays.len();
    let params: Params = arrays.into_iter().collect();
    match (left.len(), params.iter().count() == count) {
        (0, true) => Ok(params),
        (0, false) => Err(refuse("its layout contains a name twice".into())),
        (more, _) => Err(refuse(format!("it has {more} numbers more than its layout describes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Params {
        let arrays = [("a", vec![2, 3]), ("b", vec![]), ("c", vec![0])];
        let array =
            |shape: Vec<usize>| Array::new(shape.clone(), (0..shape.iter().product()).map(|value| value as f32).collect());
        arrays.into_iter().map(|(name, shape)| (name.to_owned(), array(shape))).collect()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let (packed, layout) = pack(&params());
        assert_eq!(packed.iter().count(), 1);
        assert_eq!(unpack(&packed, &layout).expect("sound"), params());
    }

    #[test]
    fn layouts_that_do_not_fit_are_refused() {
        let (packed, _) = pack(&params());
        let layouts = [
            ("[", "malformed"),
            (r#"[["a",[2,3]]]"#, "more"),
            (r#"[["a",[9]]]"#, "too few numbers for `a`"),
            (r#"[["a",[4294967296,4294967296,4294967296]]]"#, "too few numbers for `a`"),
            (r#"[["a",[3]],["a",[4]]]"#, "twice"),
        ];
        for (layout, words) in layouts {
            let problem = unpack(&packed, layout).expect_err(layout).to_string();
            assert!(problem.contains(words), "{layout}: {problem}");
        }
        assert!(unpack(&Params::default(), "[]").is_err());
    }
}
