//! Loops that there are.

use proptest::prelude::*;

use super::*;
use crate::stream::{Origin, Reference};

/// Operations after which a loop of a period must have been found.
fn latest(period: usize) -> usize {
    (4 * period).max(period + 34)
}

#[test]
fn loops_of_all_periods_are_found() {
    for period in [3, 5, 25, 800, 4096] {
        let body = training(period);
        let mut client = Client::new();
        let mut state = client.state(&body);
        client.run(&body, &mut state, latest(period).div_ceil(period) + 4);
        // Long ones have short ones in them: updates of states, and the chain.
        let mut periods = client.periods();
        assert_eq!(periods.pop(), Some(period));
        assert!(periods.iter().all(|inner| *inner <= 3), "{periods:?}");
        let (at, path) = *client.found().last().unwrap();
        assert!(at < latest(period), "{period}: found at {at}");
        // Iterations begin where they do.
        let boundaries = client.answers.iter().enumerate();
        let boundaries: Vec<usize> = boundaries
            .filter(|(_, answer)| **answer == Answer::Boundary(path))
            .map(|(at, _)| (at + 1) % period)
            .collect();
        assert!(boundaries.len() >= 3, "{period}: {boundaries:?}");
        assert!(
            boundaries.iter().all(|at| *at == 0),
            "{period}: {boundaries:?}"
        );
    }
}

/// States are carried, constants kept, and the batch is another one in each iteration; nothing else
/// is left of an iteration.
#[test]
fn a_path_knows_where_values_come_from() {
    let body = training(25);
    let mut client = Client::new();
    let mut state = client.state(&body);
    client.run(&body, &mut state, 4);
    let (_, id) = client.found()[0];
    let path = client.stream.path(id).unwrap();
    let count = |is_it: fn(&Origin) -> bool| {
        let slots = path.slots().iter();
        slots.filter(|slot| is_it(&slot.origin)).count()
    };
    assert_eq!(count(|origin| *origin == Origin::Fresh), 1);
    assert_eq!(count(|origin| *origin == Origin::Kept), 3);
    assert_eq!(count(|origin| matches!(origin, Origin::Carried(_))), 5);
    assert_eq!(path.slots().len(), 9);
    let carried = path.results().iter().filter(|held| held.carried.is_some());
    assert_eq!(carried.count(), 5);
    // Nothing reads the last one of the chain.
    let results: Vec<u32> = path.results().iter().map(|held| held.operation).collect();
    assert_eq!(results, [19, 20, 21, 22, 23, 24]);
    assert_eq!(path.operations()[0].operands[0], Reference::Slot(0));
    let graph = path.graph();
    let updates = graph.graph.outputs().iter();
    assert_eq!(updates.filter(|output| output.updates.is_some()).count(), 5);
}

/// Twelve layers of five operations between others: the layer is a loop, and the whole is one.
#[test]
fn nested_loops_are_both_found() {
    let mut steps = vec![];
    let mut push = |word, operands: &[From]| {
        steps.push(Step {
            word,
            operands: operands.to_vec(),
        });
        From::Inside(steps.len() - 1)
    };
    let mut x = push(5, &[From::Fresh]);
    let mut state = 0;
    for _ in 0..12 {
        let q = push(0, &[x, From::State(state)]);
        let k = push(0, &[x, From::State(state + 1)]);
        let scores = push(1, &[q, k]);
        let mixed = push(2, &[scores]);
        x = push(3, &[x, mixed]);
        state += 2;
    }
    let loss = push(6, &[x, From::Fresh]);
    let mut next = vec![];
    for at in 0..24 {
        let From::Inside(made) = push(4, &[From::State(at), loss]) else {
            unreachable!("operations are inside");
        };
        next.push(made);
    }
    let body = Body { steps, next };
    let mut client = Client::new();
    let mut state = client.state(&body);
    client.run(&body, &mut state, 12);
    let mut periods = client.periods();
    assert_eq!(client.found().last().map(|(_, path)| *path), {
        let paths = client.found().into_iter();
        paths
            .map(|(_, path)| path)
            .find(|path| client.stream.path(*path).unwrap().period() == 86)
    });
    periods.sort_unstable();
    assert_eq!(periods, [5, 86]);
    let (at, _) = client.found()[1];
    assert!(at < 86 * 5, "{at}");
}

#[test]
fn interrupted_loops_are_one_path() {
    let [body, other] = [25, 7].map(training);
    let mut client = Client::new();
    let [mut state, mut between] = [&body, &other].map(|body| client.state(body));
    let mut random = Random(5);
    for _ in 0..12 {
        client.run(&body, &mut state, 7 + random.below(6));
        // It reads the states of the loop.
        client.record(8, &state.states);
        client.run(&other, &mut between, 1);
        client.words((0..random.below(5)).map(|at| 10 + at));
    }
    assert_eq!(client.periods(), [25]);
    let path = client.found()[0].1;
    let is_boundary = |answer: &&Answer| **answer == Answer::Boundary(path);
    let boundaries = client.answers.iter().filter(is_boundary).count();
    let iterations = client.answers.len().saturating_sub(client.found()[0].0) / 33;
    assert!(boundaries > iterations, "{boundaries} of {iterations}");
}

#[test]
fn loops_in_turns_are_all_found() {
    let bodies: Vec<Body> = [5, 12, 40].map(training).to_vec();
    let mut client = Client::new();
    let mut states: Vec<State> = bodies.iter().map(|body| client.state(body)).collect();
    let mut random = Random(3);
    for at in 0..24 {
        let (body, state) = (&bodies[at % 3], &mut states[at % 3]);
        client.run(body, state, 12 + random.below(9));
    }
    let mut periods = client.periods();
    periods.sort_unstable();
    assert_eq!(periods, [5, 12, 40]);
}

/// A path that is known from an earlier stream is replaced from its first iteration on.
#[test]
fn paths_of_other_streams_are_known() {
    let body = training(25);
    let find = |naming| {
        let mut client = Client::with(Options::default(), naming);
        let mut state = client.state(&body);
        client.words(0..naming as usize % 5);
        client.run(&body, &mut state, 4);
        let path = client.found()[0].1;
        client.stream.path(path).unwrap().clone()
    };
    let [path, other] = [3, 77].map(find);
    let exactly = |extent| extent;
    assert_eq!(path.signature(exactly), other.signature(exactly));
    assert_ne!(path.signature(exactly), path.signature(|_| 64));
    let mut client = Client::new();
    let id = client.stream.know(&path);
    assert_eq!(client.stream.know(&other), id);
    assert!(client.stream.adopt(id));
    let mut state = client.state(&body);
    client.run(&body, &mut state, 6);
    let replaced = client
        .answers
        .iter()
        .filter(|answer| **answer == Answer::Replace(id));
    assert_eq!(replaced.count(), 6);
    assert!(
        client.answers[..24]
            .iter()
            .all(|answer| *answer == Answer::Hold)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random bodies after random work, with random names of values: found at the exact period, in
    /// time, and followed across random interruptions.
    #[test]
    fn random_loops_are_found(seed: u64, size in 3usize..120, naming: u64) {
        let mut random = Random(seed);
        let body = random.body(size);
        let mut client = Client::with(Options::default(), naming);
        let words = (0..random.below(60)).map(|_| 20 + random.below(4)).collect::<Vec<_>>();
        client.words(words.iter().copied());
        let mut state = client.state(&body);
        client.run(&body, &mut state, latest(size).div_ceil(size) + 1);
        prop_assert_eq!(client.periods(), vec![size]);
        let (at, path) = client.found()[0];
        prop_assert!(at < words.len() + latest(size) + size, "{} after {}", at, words.len());
        let before = client.answers.len();
        for round in 0..5 {
            client.words((0..random.below(4)).map(|at| 30 + at));
            client.run(&body, &mut state, 4 + round);
        }
        let after = client.answers[before..].iter();
        let boundaries = after.filter(|answer| **answer == Answer::Boundary(path)).count();
        prop_assert!(boundaries >= 3 + 4 + 5 + 6 + 7, "{}", boundaries);
        prop_assert_eq!(client.periods(), vec![size]);
    }
}

/// Paths are compiled in other threads, and streams may be made in one and used in another.
#[test]
fn streams_and_paths_can_be_sent() {
    fn assert_is_sent<T: Send>() {}
    assert_is_sent::<Stream>();
    assert_is_sent::<crate::stream::Path>();
}
