//! "SAME" padding in the sense of TensorFlow.

/// How many outputs a window moved by `stride` gives on `size` inputs: `ceil(size / stride)`, whatever the window.
pub fn same_size(size: usize, stride: usize) -> usize {
    size.div_ceil(stride)
}

/// How many entries to add before and after `size` inputs so that the windows reach exactly over them.
///
/// The total is `max((same_size - 1) * stride + window - size, 0)`; an odd one goes to the end.
pub fn same_padding(size: usize, window: usize, stride: usize) -> (usize, usize) {
    let end = (same_size(size, stride).saturating_sub(1)).saturating_mul(stride).saturating_add(window);
    let total = end.saturating_sub(size);
    (total / 2, total - total / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_networks_of_the_paper() {
        let halved = |size| same_size(size, 2);
        assert_eq!([28, 14, 7].map(halved), [14, 7, 4]);
        assert_eq!([32, 16, 8].map(halved), [16, 8, 4]);
        assert_eq!([8, 4, 2, 1].map(halved), [4, 2, 1, 1]);
    }

    #[test]
    fn an_odd_total_goes_to_the_end() {
        assert_eq!(same_padding(28, 3, 2), (0, 1));
        assert_eq!(same_padding(8, 3, 2), (0, 1));
        assert_eq!(same_padding(14, 3, 2), (0, 1));
        assert_eq!(same_padding(5, 4, 1), (1, 2));
    }

    #[test]
    fn odd_sizes_and_small_ones_are_padded_evenly() {
        assert_eq!(same_padding(28, 3, 1), (1, 1));
        assert_eq!(same_padding(7, 3, 2), (1, 1));
        assert_eq!(same_padding(5, 3, 2), (1, 1));
        assert_eq!(same_padding(1, 3, 2), (1, 1));
    }

    #[test]
    fn a_window_no_wider_than_its_stride_needs_none() {
        assert_eq!(same_padding(8, 1, 1), (0, 0));
        assert_eq!(same_padding(7, 1, 2), (0, 0));
        assert_eq!(same_padding(8, 1, 2), (0, 0));
    }
}
