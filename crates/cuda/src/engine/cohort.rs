//! Who works together: jobs that are alike, in cohorts that fit into the device's memory.

/// Places of items that are alike, in the order in which they come first.
pub(crate) fn alike<T>(items: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match groups.iter_mut().find(|group| same(&items[group[0]], item)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Cuts a group into cohorts of at most `most` members: those that take longest together, so that few lanes are idle, and all cohorts of about the same size.
pub(crate) fn pack(group: &[usize], cost: impl Fn(usize) -> usize, most: usize) -> Vec<Vec<usize>> {
    if group.is_empty() {
        return Vec::new();
    }
    let mut order = group.to_vec();
    order.sort_by_key(|&at| std::cmp::Reverse(cost(at)));
    let cohorts = order.len().div_ceil(most.max(1));
    order.chunks(order.len().div_ceil(cohorts)).map(<[usize]>::to_vec).collect()
}

/// The most lanes, of `wanted`, for which `bytes` of a cohort fit into `room`; one at least, which may not fit.
pub(crate) fn most_lanes(wanted: usize, room: u64, mut bytes: impl FnMut(usize) -> u64) -> usize {
    if bytes(wanted) <= room {
        return wanted;
    }
    let (mut fits, mut too_many) = (1, wanted);
    while too_many > fits + 1 {
        let middle = fits.midpoint(too_many);
        if bytes(middle) <= room { fits = middle } else { too_many = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_the_same_is_together() {
        assert_eq!(alike(&[3, 5, 3, 7, 5], |a, b| a == b), [vec![0, 2], vec![1, 4], vec![3]]);
    }

    #[test]
    fn the_longest_are_together_and_none_is_left_out() {
        let costs = [5, 1, 9, 3, 7, 2, 8];
        let cohorts = pack(&[0, 1, 2, 3, 4, 5, 6], |at| costs[at], 3);
        assert_eq!(cohorts, [vec![2, 6, 4], vec![0, 3, 5], vec![1]]);
        assert_eq!(pack(&[4, 2], |at| costs[at], 10), [vec![2, 4]]);
        assert!(pack(&[], |_| 0, 3).is_empty());
        // Ten in cohorts of at most four are cut into 4, 4 and 2, not into four.
        assert_eq!(pack(&(0..10).collect::<Vec<_>>(), |_| 1, 4).len(), 3);
    }

    #[test]
    fn as_many_lanes_as_fit() {
        for room in 0..200 {
            for wanted in [1, 2, 7, 30] {
                let bytes = |lanes: usize| 7 * lanes as u64 + 3;
                let expected = (1..=wanted).rev().find(|&lanes| bytes(lanes) <= room).unwrap_or(1);
                assert_eq!(most_lanes(wanted, room, bytes), expected, "{wanted} into {room}");
            }
        }
    }
}
