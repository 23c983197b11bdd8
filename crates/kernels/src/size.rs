//! Sizes of what kernels work on.

/// The product of some extents.
///
/// Every product of a few of them is a `usize` too, also where one of them is zero: kernels rely on that.
///
/// # Panics
///
/// If that is more than a `usize` holds: no memory has so many numbers.
#[inline]
pub(crate) fn product<const N: usize>(extents: [usize; N]) -> usize {
    let largest = extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent.max(1)));
    let largest = largest.unwrap_or_else(|| panic!("an extent of `{extents:?}` is more than any memory holds"));
    if extents.contains(&0) { 0 } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_exact_or_refused() {
        assert_eq!(product([2, 3, 4]), 24);
        assert_eq!(product([2, 0, 4]), 0);
        assert_eq!(product::<0>([]), 1);
    }

    #[test]
    #[should_panic = "more than any memory holds"]
    fn a_product_that_overflows_is_refused() {
        product([usize::MAX / 2, 3]);
    }

    #[test]
    #[should_panic = "more than any memory holds"]
    fn nothing_of_an_absurd_extent_is_refused_too() {
        product([0, usize::MAX, 2]);
    }
}
