//! Points taken together: geometric means of their ratios.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::estimate::{Design, Estimate};
use super::median::Centre;
use super::verdict::Verdict;
use super::{Point, Settings};

/// Points with one value of an axis, together: the geometric mean of their ratios.
#[derive(Clone, Debug)]
pub struct Group {
    /// The axis; none for all points.
    pub axis: Option<String>,
    /// The value of the axis.
    pub value: String,
    /// Points in the group.
    pub points: usize,
    /// The geometric mean of the ratios of B to A.
    pub estimate: Estimate,
    /// The estimate's probability, corrected for all groups.
    pub p: f64,
    /// The verdict on the group.
    pub verdict: Verdict,
}

/// Geometric means of all points, and of the points with each value of each axis that is asked for.
/// A group has its points that were measured in every run: each run then counts as one measurement
/// of the group, because its points share its fate.
pub(super) fn groups(
    centres: &[[Vec<Option<Centre>>; 2]],
    points: &[Point],
    design: &Design,
    settings: &Settings,
) -> Result<Vec<Group>, String> {
    let is_whole = |index: &usize| {
        let present = centres[*index].iter().flatten().all(Option::is_some);
        present && points[*index].estimate.is_some()
    };
    let whole: Vec<usize> = (0..points.len()).filter(is_whole).collect();
    let mut members: Vec<(Option<String>, String, Vec<usize>)> = Vec::new();
    if whole.len() > 1 {
        members.push((None, "all points".to_owned(), whole.clone()));
    }
    for axis in &settings.by {
        if !points.iter().any(|point| point.axes.contains_key(axis)) {
            return Err(no_axis(axis, points));
        }
        let start = members.len();
        for &index in &whole {
            let Some(value) = points[index].axes.get(axis) else {
                continue;
            };
            let held = members[start..].iter_mut().find(|group| group.1 == *value);
            match held {
                Some(group) => group.2.push(index),
                None => members.push((Some(axis.clone()), value.clone(), vec![index])),
            }
        }
        // The order in which points were measured is an accident.
        members[start..].sort_by(|one, other| in_order(&one.1, &other.1));
    }
    let estimated = members.into_iter().filter_map(|(axis, value, members)| {
        let means = [0, 1].map(|side| means(centres, &members, side));
        let estimate = Estimate::of(design, [&means[0], &means[1]], &settings.spread)?;
        Some((axis, value, members.len(), estimate))
    });
    let estimated: Vec<_> = estimated.collect();
    let p: Vec<f64> = estimated.iter().map(|(.., estimate)| estimate.p).collect();
    let adjusted = settings.rule.correction.adjust(&p);
    let group = |((axis, value, points, estimate), p): ((_, _, _, Estimate), f64)| Group {
        axis,
        value,
        points,
        estimate,
        p,
        verdict: settings.verdict(&estimate, p),
    };
    Ok(estimated.into_iter().zip(adjusted).map(group).collect())
}

/// Numbers by their size, before words.
fn in_order(one: &str, other: &str) -> Ordering {
    let [number, other_number] = [one, other].map(|text| text.parse().unwrap_or(f64::INFINITY));
    let by_number = number.total_cmp(&other_number);
    by_number.then_with(|| one.cmp(other))
}

fn no_axis(axis: &str, points: &[Point]) -> String {
    let names: BTreeSet<&str> = points
        .iter()
        .flat_map(|point| point.axes.keys().map(String::as_str))
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "--by {axis}: no point has that axis; there are {}",
        names.join(", ")
    )
}

/// For each run the mean of the members' centres.
fn means(
    centres: &[[Vec<Option<Centre>>; 2]],
    members: &[usize],
    side: usize,
) -> Vec<Option<Centre>> {
    let runs = members
        .first()
        .map_or(0, |&index| centres[index][side].len());
    (0..runs)
        .map(|run| {
            let of_run: Option<Vec<Centre>> = members
                .iter()
                .map(|&index| centres[index][side][run])
                .collect();
            Centre::mean(&of_run?)
        })
        .collect()
}
