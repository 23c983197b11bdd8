//! Training pictures moved and mirrored by chance.
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Seed;

/// How pictures are changed each time they are trained on. Whoever asks with the same seed gets the same changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// A border of so many black pixels is put around a picture, and a part of the picture's own size is cut out anywhere; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub crop: Option<usize>,
    /// Whether one in two pictures is mirrored left to right.
    pub flip: bool,
}

/// How one picture is changed: it moves, and is then mirrored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureChange {
    /// By how many pixels it moves down and to the right.
    pub by: [isize; 2],
    /// Whether left and right change places.
    pub mirrored: bool,
}

impl Augmentation {
    /// Whether it leaves pictures as they are.
    pub fn is_nothing(&self) -> bool {
        self.crop.unwrap_or(0) == 0 && !self.flip
    }

    /// What happens to a sample in an epoch with this seed: for an engine that holds the data set elsewhere, such as on a device.
    pub fn change(&self, seed: Seed, sample: u64) -> PictureChange {
        let mut rng = seed.derive("augment", [sample]).rng();
        let border = self.crop.unwrap_or(0) as i64;
        let by = [0, 1].map(|_| rng.random_range(-border..=border) as isize);
        PictureChange { by, mirrored: self.flip && rng.random::<bool>() }
    }

    /// Changes a picture of this shape, channels last; `black` is what a pixel outside of it holds, and `spare` any memory.
    pub(super) fn apply(
        &self,
        seed: Seed,
        sample: u64,
        picture: &mut [f32],
        [height, width, channels]: [usize; 3],
        black: &[f32],
        spare: &mut Vec<f32>,
    ) {
        let PictureChange { by: [down, right], mirrored } = self.change(seed, sample);
        if (down, right, mirrored) == (0, 0, false) {
            return;
        }
        spare.clear();
        spare.extend_from_slice(picture);
        for (row, line) in picture.chunks_exact_mut(width * channels).enumerate() {
            for (column, pixel) in line.chunks_exact_mut(channels).enumerate() {
                let column = if mirrored { width - 1 - column } else { column };
                let from = [row.checked_add_signed(-down), column.checked_add_signed(-right)];
                match from {
                    [Some(row), Some(column)] if row < height && column < width => {
                        pixel.copy_from_slice(&spare[(row * width + column) * channels..][..channels]);
                    }
                    _ => pixel.copy_from_slice(black),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: [usize; 3] = [3, 4, 2];

    fn picture() -> Vec<f32> {
        (0..24).map(|value| value as f32).collect()
    }

    fn changed(augmentation: Augmentation, seed: u64, sample: u64) -> Vec<f32> {
        let mut changed = picture();
        augmentation.apply(Seed::new(seed), sample, &mut changed, SHAPE, &[-1.0, -2.0], &mut Vec::new());
        changed
    }

    #[test]
    fn a_mirrored_picture_is_the_picture_from_right_to_left() {
        let flip = Augmentation { flip: true, crop: None };
        let mirrored: Vec<f32> = picture().chunks(8).flat_map(|line| line.chunks(2).rev().flatten().copied()).collect();
        let found: Vec<Vec<f32>> = (0..40).map(|sample| changed(flip, 1, sample)).collect();
        assert!(found.iter().all(|found| *found == picture() || *found == mirrored));
        let count = found.iter().filter(|found| **found == mirrored).count();
        assert!((10..30).contains(&count), "{count} of 40");
    }

    #[test]
    fn a_cut_out_is_the_picture_moved_with_black_where_it_was_not() {
        let crop = Augmentation { flip: false, crop: Some(1) };
        let mut seen = std::collections::BTreeSet::new();
        for sample in 0..60 {
            let found = changed(crop, 3, sample);
            let PictureChange { by: [down, right], mirrored } = crop.change(Seed::new(3), sample);
            assert!(!mirrored && down.abs() <= 1 && right.abs() <= 1);
            seen.insert((down, right));
            for (row, column) in (0..3isize).flat_map(|row| (0..4isize).map(move |column| (row, column))) {
                let (from_row, from_column) = (row - down, column - right);
                let inside = (0..3).contains(&from_row) && (0..4).contains(&from_column);
                let at = (2 * (4 * row + column)) as usize;
                let first = (2 * (4 * from_row + from_column)) as f32;
                let expected = if inside { [first, first + 1.0] } else { [-1.0, -2.0] };
                assert_eq!(found[at..at + 2], expected);
            }
        }
        assert_eq!(seen.len(), 9, "all ways to move");
    }

    #[test]
    fn changes_depend_on_seed_and_sample_alone() {
        let both = Augmentation { flip: true, crop: Some(1) };
        assert_eq!(changed(both, 5, 7), changed(both, 5, 7));
        assert!((0..20).any(|sample| changed(both, 5, sample) != changed(both, 6, sample)));
        assert!(Augmentation::default().is_nothing() && changed(Augmentation::default(), 1, 1) == picture());
    }
}
