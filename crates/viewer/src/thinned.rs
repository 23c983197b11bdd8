//! Curves of any length with a bounded number of points.
use serde::Serialize;

/// The most points that are kept of a curve. A page draws six hundred; runs of up to so many rounds are told point by point.
pub(crate) const MOST: usize = 10_000;

/// A curve of which every point is kept, or every second, or every fourth ..., and always the last.
pub(crate) struct Thinned<P> {
    kept: Vec<P>,
    /// Every so many points one is kept.
    stride: u64,
    seen: u64,
    /// The last point, where it is not among those that are kept.
    last: Option<P>,
}

impl<P> Default for Thinned<P> {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0, last: None }
    }
}

impl<P> Thinned<P> {
    /// Adds a point; tells whether points were dropped that were kept before.
    pub(crate) fn push(&mut self, point: P) -> bool {
        let is_kept = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if !is_kept {
            self.last = Some(point);
            return false;
        }
        self.last = None;
        self.kept.push(point);
        if self.kept.len() <= MOST {
            return false;
        }
        let mut is_odd = false;
        self.kept.retain(|_| {
            is_odd = !is_odd;
            is_odd
        });
        self.stride *= 2;
        true
    }

    /// How many points there were.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// The points that are kept.
    pub(crate) fn kept(&self) -> &[P] {
        &self.kept
    }

    /// The last point, where it is not among those that are kept.
    pub(crate) fn tail(&self) -> Option<&P> {
        self.last.as_ref()
    }

    /// The last point.
    pub(crate) fn last(&self) -> Option<&P> {
        self.last.as_ref().or(self.kept.last())
    }
}

impl<P: Serialize> Serialize for Thinned<P> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.kept.iter().chain(&self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: usize) -> Thinned<usize> {
        let mut thinned = Thinned::default();
        (0..points).for_each(|point| {
            thinned.push(point);
        });
        thinned
    }

    #[test]
    fn short_curves_are_kept_whole() {
        for points in [0, 1, 2, MOST] {
            let thinned = curve(points);
            assert_eq!((thinned.kept().len(), thinned.tail()), (points, None));
        }
    }

    #[test]
    fn long_curves_keep_evenly_spaced_points_and_the_last() {
        for points in [MOST + 1, MOST + 2, 3 * MOST, 10 * MOST + 7] {
            let thinned = curve(points);
            let kept = thinned.kept();
            assert!((MOST / 2..=MOST).contains(&kept.len()), "{points}: {}", kept.len());
            let stride = kept[1] - kept[0];
            assert!(kept.iter().enumerate().all(|(index, point)| *point == index * stride), "{points}");
            assert_eq!((thinned.last(), thinned.seen()), (Some(&(points - 1)), points as u64));
        }
    }

    #[test]
    fn it_is_told_when_points_are_dropped() {
        let mut thinned = Thinned::default();
        let dropped: Vec<usize> = (0..5 * MOST).filter(|point| thinned.push(*point)).collect();
        assert_eq!(dropped, [MOST, 2 * MOST, 4 * MOST]);
    }
}
