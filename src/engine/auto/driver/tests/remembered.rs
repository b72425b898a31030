//! Loops about which it was decided before.

use super::*;

/// A loop that is remembered, of so many iterations; programs take a quarter of its time.
fn remembering(decisions: &[Decision], loaded: Option<Scope>, iterations: u32) -> (Driven, usize) {
    let mut dispatcher = Three::new();
    dispatcher.recorded = 6;
    let mut clerk = Clerk::new([4, 100], 1e6);
    let bench = Bench {
        dispatcher: &mut dispatcher,
        background: &mut clerk,
        eager: EAGER,
        eager_work: Work {
            launches: 4,
            bytes: 1000,
        },
        launch_ns: 10.0,
        threshold: None,
        parts: PartsRule::Paid,
        refused: &[],
    };
    let mut all = Decisions::default();
    decisions.iter().for_each(|&held| all.add(held));
    let loaded = loaded.map(|scope| Loaded {
        id: LOOP,
        program: COMPILED,
        scope,
    });
    let mut driver = Driver::new(bench, iterations).remembering((LOOP, &all), loaded);
    let mut launcher = Counting {
        loaded: 1,
        ..Counting::new([1e5, 5e4, 1e4])
    };
    driver.run(&mut launcher).unwrap();
    (driver.finish(launcher.now_ns), launcher.moments.len())
}

fn decision(scope: Scope, is_faster: bool) -> Decision {
    Decision {
        scope,
        is_faster,
        eager_ns: 4e5,
        compiled_ns: 2e5,
    }
}

#[test]
fn a_remembered_program_runs_from_the_first_iteration_on() {
    let whole = decision(Scope::Whole, true);
    let (driven, moments) = remembering(&[whole], Some(Scope::Whole), 10);
    assert_eq!(driven.path.outcome, HotOutcome::Remembered);
    assert_eq!(driven.path.switched_at, Some(1));
    assert_eq!(driven.path.replaced, 10);
    assert_eq!(moments, 0, "there is nothing to time");
    let (driven, _) = remembering(&[decision(Scope::Whole, false)], None, 10);
    assert_eq!(driven.path.outcome, HotOutcome::Back);
    assert_eq!(driven.path.replaced, 0);
}

#[test]
fn remembered_parts_run_at_once_and_the_whole_program_later() {
    let parts = decision(Scope::Parts, true);
    let (driven, _) = remembering(&[parts], Some(Scope::Parts), 10);
    assert_eq!(driven.path.outcome, HotOutcome::Remembered);
    assert_eq!(
        (driven.path.parts_at, driven.path.switched_at),
        (Some(1), None)
    );
    let (driven, _) = remembering(&[parts], Some(Scope::Parts), LONG);
    assert_eq!(driven.path.outcome, HotOutcome::Kept);
    assert_eq!(driven.path.replaced, LONG);
    assert!(driven.path.switched_at.unwrap() > 1);
    let no_parts = decision(Scope::Parts, false);
    let (driven, _) = remembering(&[no_parts], None, LONG);
    assert_eq!(driven.path.outcome, HotOutcome::Kept);
    assert_eq!(driven.path.parts_at, None, "they are not tried again");
    let whole = decision(Scope::Whole, false);
    let (driven, moments) = remembering(&[parts, whole], Some(Scope::Parts), LONG);
    assert_eq!(driven.path.outcome, HotOutcome::Remembered);
    assert_eq!((driven.path.switched_at, moments), (None, 0));
}
