//! Streams without loops, or with less regular ones than it seems.

use proptest::prelude::*;

use super::*;

/// A client that recorded words.
fn recorded(words: impl IntoIterator<Item = usize>) -> Client {
    let mut client = Client::new();
    client.words(words);
    client
}

#[test]
fn noise_has_no_loops() {
    for (seed, words) in (0..).zip([2, 3, 8, 100]) {
        let mut random = Random(seed);
        let client = recorded((0..30_000).map(|_| random.below(words)));
        assert_eq!(client.periods(), [0; 0], "{words} words");
    }
}

/// No word comes three times in a row in the Thue-Morse word.
#[test]
fn the_thue_morse_word_has_no_loops() {
    let client = recorded((0..20_000u32).map(|at| (at.count_ones() % 2) as usize));
    assert_eq!(client.periods(), [0; 0]);
}

/// Each word that comes at all comes again soon in the Fibonacci word, and three times in a row now
/// and then.
#[test]
fn the_fibonacci_word_has_no_loops() {
    let (mut word, mut before) = (vec![0], vec![1]);
    while word.len() < 20_000 {
        let next = [word.clone(), before].concat();
        before = std::mem::replace(&mut word, next);
    }
    let client = recorded(word);
    assert_eq!(client.periods(), [0; 0]);
}

#[test]
fn almost_periodic_streams_have_no_loops() {
    // aaab aaaab aaaab aaab ..., as the Thue-Morse word has it.
    let blocks = (0..4000u32).flat_map(|at| {
        let count = 3 + (at.count_ones() % 2) as usize;
        std::iter::repeat_n(0, count).chain([1])
    });
    assert_eq!(recorded(blocks).periods(), [0; 0]);
    // Words that grow: 0 1, 0 1 2, 0 1 2 3, ...
    let growing = (1..150).flat_map(|count| 0..count);
    assert_eq!(recorded(growing).periods(), [0; 0]);
    // One word of a body is another one each time.
    let changing =
        (0..400).flat_map(|at| (0..25).map(move |word| if word == 12 { 100 + at } else { word }));
    assert_eq!(recorded(changing).periods(), [0; 0]);
}

/// Equal words, connected by chance: nothing comes again.
#[test]
fn chance_connections_are_no_loops() {
    let mut client = Client::new();
    let mut random = Random(9);
    let mut values = vec![client.fresh()];
    for _ in 0..20_000 {
        let recent = values.len().min(9);
        let operands = [0; 2].map(|_| values[values.len() - 1 - random.below(recent)]);
        values.push(client.record(0, &operands).0);
    }
    assert_eq!(client.periods(), [0; 0]);
}

/// Symbols of which half or all collide suggest wrong periods. None of them is taken for one.
#[test]
fn collisions_are_no_loops() {
    let signatures: [fn(u32) -> u32; 3] = [|_| 7, |symbol| symbol % 2, |symbol| symbol % 5];
    for signature in signatures {
        let mut client = Client::new();
        client.stream.history.signature = signature;
        let mut random = Random(4);
        let noise: Vec<usize> = (0..5000).map(|_| random.below(6)).collect();
        client.words(noise.iter().copied());
        assert_eq!(client.periods(), [0; 0]);
        // What is found is what is there.
        let body = training(25);
        let mut state = client.state(&body);
        client.run(&body, &mut state, 40);
        client.words(noise);
        assert!(client.periods().iter().all(|period| *period == 25));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Streams that are put together from parts of few bodies: whatever is found did come three
    /// times and more than half, with no lesser period.
    #[test]
    fn loops_are_what_they_are_said_to_be(seed: u64, bodies in 1usize..4) {
        let mut random = Random(seed);
        let bodies: Vec<Vec<usize>> = (0..bodies)
            .map(|_| (0..1 + random.below(12)).map(|_| random.below(3)).collect())
            .collect();
        let mut words: Vec<usize> = vec![];
        while words.len() < 4000 {
            let body = &bodies[random.below(bodies.len())];
            for _ in 0..random.below(12) {
                words.extend(body);
            }
            if random.is_one_of(3) {
                words.push(random.below(3));
            }
        }
        let options = Options { window: [2, 7, 30, 4096][random.below(4)], ..Options::default() };
        let mut client = Client::with(options, 1);
        client.words(words.iter().copied());
        let mut paths = std::collections::BTreeSet::new();
        for (at, path) in client.found() {
            let period = client.stream.path(path).unwrap().period();
            prop_assert!(paths.insert(path) && period <= options.window);
            // The operations of a path are looked at when it ends.
            let is_there = (at.saturating_sub(4096)..=at).rev().any(|end| {
                let length = (362 * period / 100).max(period + 32);
                end + 1 >= length && {
                    let seen = &words[end + 1 - length..=end];
                    let has = |period: usize| seen[period..] == seen[..length - period];
                    has(period) && !(1..period).any(|lesser| period.is_multiple_of(lesser) && has(lesser))
                }
            });
            prop_assert!(is_there, "{} at {}", period, at);
        }
    }
}
