//! The sampling of the published benchmark (guide 000), for people who want its tables.
//!
//! It takes the first bucket that holds a value, or else the last one, for T and K x C; turns the
//! bucket of K x C into the divisor pair nearest to (K, C); takes some of the canonical shapes evenly,
//! ordered by T K C, and some members of each evenly. Shapes do not dominate their members there; here
//! they only choose which points are measured.

use std::collections::{BTreeMap, BTreeSet};

use sweeper_kernels::Value;

use crate::grid::{Grid, Point};

const T_BUCKETS: [u64; 6] = [64, 128, 256, 512, 1024, 2048];
const KC_BUCKETS: [u64; 8] = [12, 24, 48, 72, 96, 144, 192, 288];

/// T, K and C.
type Shape = [u64; 3];

/// The canonical shape of the published algorithm.
pub fn canonical([t, k, c]: Shape) -> Shape {
    let first = |buckets: &[u64], value: u64| {
        let held = buckets.iter().copied().find(|&bucket| bucket >= value);
        held.unwrap_or(buckets[buckets.len() - 1])
    };
    let states = first(&KC_BUCKETS, k * c);
    let distance = |pair: [u64; 2]| pair[0].abs_diff(k) as f64 + 0.5 * pair[1].abs_diff(c) as f64;
    // The first of equally near pairs, by ascending K, as the published loop finds it.
    let mut best = [1, states];
    for divisor in (1..=states).filter(|divisor| states.is_multiple_of(*divisor)) {
        let pair = [divisor, states / divisor];
        if distance(pair) < distance(best) {
            best = pair;
        }
    }
    [first(&T_BUCKETS, t), best[0], best[1]]
}

/// `count` positions out of `n`, spread evenly: round(i (n - 1) / (count - 1)), ties to even, as
/// Python rounds.
fn evenly(n: usize, count: usize) -> BTreeSet<usize> {
    if count >= n {
        return (0..n).collect();
    }
    if count <= 1 {
        return (0..count).collect();
    }
    let step = (n - 1) as f64 / (count - 1) as f64;
    (0..count)
        .map(|i| (i as f64 * step).round_ties_even() as usize)
        .collect()
}

/// The sampled shapes, in the order of T K C within each canonical shape.
pub fn sample_shapes(shapes: &BTreeSet<Shape>, most: usize, each: usize) -> BTreeSet<Shape> {
    let size = |shape: &Shape| shape.iter().product::<u64>();
    let mut groups: BTreeMap<Shape, Vec<Shape>> = BTreeMap::new();
    for &shape in shapes {
        groups.entry(canonical(shape)).or_default().push(shape);
    }
    let mut groups: Vec<(Shape, Vec<Shape>)> = groups.into_iter().collect();
    groups.sort_by_key(|(shape, _)| size(shape));
    let taken = evenly(groups.len(), most);
    let mut sampled = BTreeSet::new();
    for group in taken {
        let members = &mut groups[group].1;
        members.sort_by_key(size);
        sampled.extend(
            evenly(members.len(), each)
                .into_iter()
                .map(|index| members[index]),
        );
    }
    sampled
}

/// The points of the grid that the published sampling measures, ascending.
pub fn sample(grid: &Grid<'_>, most: usize, each: usize) -> Vec<u32> {
    let shapes: BTreeSet<Shape> = grid
        .points()
        .iter()
        .filter_map(|&point| shape(grid, point))
        .collect();
    let sampled = sample_shapes(&shapes, most, each);
    let is_sampled =
        |point: Point| shape(grid, point).is_some_and(|shape| sampled.contains(&shape));
    let numbered = grid.points().iter().zip(0..);
    numbered
        .filter(|(point, _)| is_sampled(**point))
        .map(|(_, index)| index)
        .collect()
}

fn shape(grid: &Grid<'_>, point: Point) -> Option<Shape> {
    let size = |name: &str| match grid.value(point, name)? {
        Value::Int(value) => u64::try_from(value).ok(),
        _ => None,
    };
    Some([size("T")?, size("K")?, size("C")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_grid() -> BTreeSet<Shape> {
        let mut shapes = BTreeSet::new();
        for t in [128, 256, 512, 1024] {
            for k in [4, 8, 12, 16, 20, 24] {
                for c in [3, 6, 9, 12] {
                    shapes.insert([t, k, c]);
                }
            }
        }
        shapes
    }

    #[test]
    fn the_default_grid_has_84_shapes_and_11_samples() {
        let shapes = default_grid();
        assert_eq!(shapes.len(), 96);
        let canonical: BTreeSet<Shape> = shapes.iter().map(|&shape| canonical(shape)).collect();
        assert_eq!(canonical.len(), 84);
        assert_eq!(sample_shapes(&shapes, 8, 2).len(), 11);
    }

    #[test]
    fn some_shapes_are_smaller_than_their_members() {
        let smaller = default_grid()
            .into_iter()
            .filter(|&[t, k, c]| {
                let [bound_t, bound_k, bound_c] = canonical([t, k, c]);
                bound_t < t || bound_k < k || bound_c < c
            })
            .count();
        assert!(smaller > 0);
    }

    #[test]
    fn even_positions_round_like_python() {
        assert_eq!(evenly(6, 3), [0, 2, 5].into());
        assert_eq!(evenly(3, 8), [0, 1, 2].into());
        assert_eq!(evenly(3, 1), [0].into());
    }
}
