//! Smaller problems that stand for others.

use super::*;
use crate::device::null::Null;
use crate::execute::answers::Answers;
use crate::execute::protocol::{Settings, Stage};
use sweeper_manifest::settings::{Order, Stopping, Warmup};
use sweeper_program::inputs::InputKey;
use sweeper_program::{Dtype, Parameters};
use sweeper_workloads::registry;

struct Nobody;

impl Listener for Nobody {
    fn working(&mut self, _number: u32, _stage: Stage) {}
    fn finished(&mut self, _number: u32, _outcome: Outcome) {}
}

fn instance(fault: &str) -> ProblemInstance {
    let parameters: Parameters = [("fault", fault)].into_iter().collect();
    let workload = registry::workload("faults").unwrap();
    let problem = workload.problem(&parameters, Dtype::F32).unwrap();
    let inputs = problem.generate(&InputKey([7; 32]));
    let expected = Some(problem.oracle(&inputs, Phase::Forward));
    ProblemInstance {
        problem: problem.into(),
        inputs,
        expected,
        input_digest: None,
        peer: None,
    }
}

#[test]
fn a_smaller_problem_proves_nothing_of_other_kernels() {
    let block = Block {
        workload: "faults".to_owned(),
        parameters: Vec::new(),
        dtype: Dtype::F32,
        problem: [7; 32],
        inputs: None,
        save_tensors: None,
        settings: Settings {
            stop: Stopping::Repeats(1),
            warmup: Warmup::Runs(0),
            fresh_starts: 0,
            verify: true,
            oracle_s: 0.0,
            order: Order::Interleaved,
            auto: Default::default(),
            compile_limit: std::time::Duration::from_secs(60),
        },
        points: vec![
            BlockPoint::forward(0, "faulty"),
            BlockPoint::forward(1, "sound"),
        ],
        rivals: Vec::new(),
        oracle_kernels: Vec::new(),
        oracle_failure: None,
        artifacts: Vec::new(),
    };
    let context = BlockContext {
        block: &block,
        instance: instance("none"),
        judge: None,
        programs: RefCell::default(),
        reduced: None,
        showing: BTreeMap::new(),
        for_functions: None,
        call_inputs: RefCell::default(),
        audit: Audit::default(),
        answers: &Answers::default(),
        busy: Cell::default(),
    };
    // Another fault changes the kernels of `faulty`, not those of `sound`.
    let mut device = Null::default();
    let small = instance("wrong");
    let verdicts = context.verify_on(&small, &Artifacts::new(), &mut device, &mut Nobody);
    let Ok(verdicts) = verdicts else {
        panic!("the null device is never lost");
    };
    let checked: Vec<Checked> = verdicts
        .values()
        .map(|verdict| verdict.as_ref().unwrap().checked)
        .collect();
    assert_eq!(checked, [Checked::None, Checked::Reduced]);
}
