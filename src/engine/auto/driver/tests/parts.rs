//! Parts that repeat in a loop, compiled before all of it.

use super::*;

/// By its work the whole program would gain 0.28 ms an iteration, and the program of parts, which
/// pays at once, 0.016.
fn with_parts(step_ns: [f64; 3], whole_price_ns: f64) -> Setting {
    let mut setting = Setting::new([0.0, 0.0]);
    setting.step_ns = step_ns;
    setting.clerk = Clerk::new([4, 300], whole_price_ns);
    setting.clerk.parts = Some(planned([4, 960], 1e6));
    setting
}

/// The price of a whole program that pays after 5000 iterations of [`LONG`].
const LATE_NS: f64 = 4.0 * 5e3 * 280e3;

#[test]
fn parts_run_until_the_whole_program_pays() {
    let run = with_parts([1e5, 9.6e4, 2e4], LATE_NS).run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    assert_eq!(run.asked_for, [Scope::Parts, Scope::Whole]);
    assert_eq!(
        run.decisions(),
        [(Scope::Parts, true), (Scope::Whole, true)]
    );
    run.assert_each_ran_once(LONG);
    let path = &run.driven.path;
    let [parts_at, switched_at] = [path.parts_at, path.switched_at].map(Option::unwrap);
    assert!(parts_at + 1000 < switched_at, "{path:?}");
    assert_eq!((path.eager_ns, path.compiled_ns), (Some(4e5), Some(8e4)));
    assert_eq!(run.driven.last, SECOND);
    assert_eq!(path.regressions, 0);
}

#[test]
fn parts_stay_where_the_whole_program_is_too_dear_or_no_faster() {
    let run = with_parts([1e5, 5e4, 2e4], 1e15).run(LONG);
    assert_eq!(run.outcome(), HotOutcome::KeptParts);
    assert_eq!(run.asked_for, [Scope::Parts]);
    assert_eq!(run.driven.last, COMPILED);
    run.assert_each_ran_once(LONG);

    let run = with_parts([1e5, 9.6e4, 9.7e4], LATE_NS).run(LONG);
    assert_eq!(run.outcome(), HotOutcome::KeptParts);
    assert_eq!(
        run.decisions(),
        [(Scope::Parts, true), (Scope::Whole, false)]
    );
    assert_eq!(run.driven.path.regressions, 1);
    assert_eq!(run.driven.last, COMPILED, "the loop goes back to it");
    run.assert_each_ran_once(LONG);

    // By its work the whole program would gain no more than parts were found to.
    let run = with_parts([1e5, 2e4, 2e4], LATE_NS).run(LONG);
    assert_eq!(run.asked_for, [Scope::Parts]);
    assert_eq!(run.outcome(), HotOutcome::KeptParts);
}

#[test]
fn without_faster_parts_the_whole_program_is_compiled_once_it_pays() {
    let run = with_parts([1e5, 1.1e5, 2e4], LATE_NS).run(LONG);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    assert_eq!(
        run.decisions(),
        [(Scope::Parts, false), (Scope::Whole, true)]
    );
    run.assert_each_ran_once(LONG);
    let mut setting = with_parts([1e5, 2e4, 2e4], LATE_NS);
    setting.clerk.parts = None;
    let run = setting.run(LONG);
    assert_eq!(run.asked_for, [Scope::Whole]);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    // What pays at once needs no parts.
    let run = with_parts([1e5, 2e4, 2e4], 1e3).run(LONG);
    assert_eq!(run.asked_for, [Scope::Whole]);
    assert_eq!(run.driven.path.parts_at, None);
}

#[test]
fn parts_come_first_or_never_where_the_manifest_says_so() {
    // Neither program pays, and parts are no faster.
    let mut setting = with_parts([1.0, 1.1, 0.5], 1e15);
    setting.clerk.parts = Some(planned([4, 1000], 1e15));
    (setting.threshold, setting.parts) = (Some(20), PartsRule::First);
    let run = setting.run(LONG);
    assert_eq!(run.asked_for, [Scope::Parts, Scope::Whole]);
    assert_eq!(run.outcome(), HotOutcome::Kept);
    assert!(run.driven.path.parts_at < run.driven.path.switched_at);
    run.assert_each_ran_once(LONG);

    let mut setting = with_parts([1e5, 2e4, 2e4], 1e15);
    setting.parts = PartsRule::Never;
    let run = setting.run(LONG);
    assert_eq!(run.asked_for, []);
    assert_eq!(run.outcome(), HotOutcome::Unpaid);
}
