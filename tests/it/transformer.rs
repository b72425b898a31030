//! The transformer: every backend in every phase against the f64 oracle, a model that learns, and
//! kernels that many layers share.

use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job, RunsPrograms};
use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Dtype, Parameters, Phase, Role, Step, Target, Tensor, Tensors, Value,
};
use sweeper_workloads::registry;

use crate::conformance::{Case, artifacts, cuda, gpu, problem, run_on_cpu};
use crate::place::{Place, code, text};
use crate::shim::{self, Mode};

const BACKENDS: [&str; 5] = ["primitive", "eager", "control", "compiled", "library"];

const MODELS: [&str; 4] = [
    "batch=2 context=6 vocabulary=13 d_model=24 d_ff=40 layers=2 heads=3",
    "batch=3 context=37 vocabulary=70 d_model=16 d_ff=33 layers=1 heads=2 loss=cross_entropy",
    "batch=1 context=1 vocabulary=1 d_model=2 d_ff=1 layers=1 heads=1",
    "batch=1 context=64 vocabulary=128 d_model=64 d_ff=128 layers=2 heads=1 loss=cross_entropy",
];

fn case(words: &str) -> Case {
    let (problem, phases) = problem(&format!("transformer {words}"));
    Case::new(words.to_owned(), problem, phases, &BACKENDS)
}

fn bounded(context: u64) -> CanonicalShape {
    CanonicalShape::new([("context".to_owned(), context)])
}

#[test]
fn transformers_conform_on_a_cpu() {
    for words in MODELS {
        case(words).conforms_on_cpu(&CanonicalShape::default());
    }
    case(MODELS[0]).conforms_on_cpu(&bounded(16));
}

#[test]
fn transformers_conform_as_cuda_kernels() {
    if !shim::is_here() {
        return;
    }
    let phases = [Phase::Forward, Phase::Both, Phase::Step];
    for words in MODELS {
        let canonical = CanonicalShape::default();
        case(words).conforms_on_shim(&phases, &canonical, Mode::Fast);
    }
    case(MODELS[0]).conforms_on_shim(&phases, &bounded(16), Mode::Fast);
    for precision in ["tf32", "bf16"] {
        let words = format!("{} precision={precision}", MODELS[0]);
        let mut case = case(&words);
        case.conforms_on_shim(&phases, &bounded(16), Mode::Fast);
        // Attention by warps.
        case.backends = &["compiled"];
        case.gpu = gpu("sm_80");
        case.conforms_on_shim(&[Phase::Forward, Phase::Step], &bounded(16), Mode::Fast);
    }
    // Attention over more tiles than are on their way at once.
    let words =
        "batch=1 context=200 vocabulary=8 d_model=16 d_ff=8 layers=1 heads=1 precision=bf16";
    case(words).conforms_on_shim(&[Phase::Both], &bounded(256), Mode::Fast);
}

/// A CPU has no products in other precisions: f32 in their name would be a lie.
#[test]
fn what_a_cpu_lacks_is_refused() {
    let attention = "attention batch=1 sequence=64 dimension=16";
    let model = format!("transformer {}", MODELS[0]);
    for words in [attention, &model] {
        for precision in ["tf32", "bf16"] {
            let (problem, phases) = problem(&format!("{words} precision={precision}"));
            let canonical = CanonicalShape::default();
            for phase in phases {
                let program = problem.program("compiled", *phase, &canonical, &Target::Cpu);
                let refusal = program.map(|_| ()).unwrap_err().to_string();
                let expected = format!("products in {precision} are computed on GPUs only");
                assert_eq!(refusal, expected, "{words} {phase}");
            }
        }
    }
}

/// Weights that are trained are rounded in every step, those of a forward pass alone once.
#[test]
fn weights_are_rounded_to_bf16_in_timed_steps_of_training() {
    let (problem, _) = problem(&format!("transformer {} precision=bf16", MODELS[0]));
    for (phase, is_once) in [
        (Phase::Forward, true),
        (Phase::Both, false),
        (Phase::Step, false),
    ] {
        let program = problem.program("compiled", phase, &bounded(16), &cuda());
        assert_eq!(!program.unwrap().prologue.is_empty(), is_once, "{phase}");
    }
}

/// More layers are more launches of the same kernels. So is another context of one bucket, but
/// where kernels that are small enough share a launch.
#[test]
fn layers_and_contexts_share_kernels() {
    const MODEL: &str = "transformer batch=2 vocabulary=64 d_model=64 d_ff=128 heads=2";
    let canonical = bounded(64);
    for target in [Target::Cpu, cuda()] {
        for backend in ["primitive", "eager", "compiled"] {
            for phase in [Phase::Forward, Phase::Both, Phase::Step] {
                let sources = |more: &str| {
                    let (problem, _) = problem(&format!("{MODEL} {more}"));
                    let program = problem.program(backend, phase, &canonical, &target);
                    let program = program.unwrap();
                    let mut texts: Vec<String> = program
                        .compiled()
                        .map(|source| format!("{:?}", (&source.files, &source.defines)))
                        .collect();
                    texts.sort();
                    texts.dedup();
                    (texts, program.totals().launches)
                };
                let two = sources("layers=2 context=64");
                let four = sources("layers=4 context=64");
                let shorter = sources("layers=2 context=48");
                let what = format!("{backend} {phase} {target:?}");
                assert!(two.0 == four.0, "{what}: {} {}", two.0.len(), four.0.len());
                assert!(two.1 < four.1, "{what}");
                let shares_launches = backend == "compiled" && phase != Phase::Forward;
                assert!(shares_launches || two == shorter, "{what}: another context");
            }
        }
    }
}

/// Projections of one input are one product, and so are their gradients: of queries and keys, and
/// of the halves of the feed-forward network, whose weights lie one behind the other.
#[test]
fn products_that_share_a_factor_are_one() {
    let (problem, _) = problem(&format!("transformer {}", MODELS[0]));
    for (phase, per_layer) in [(Phase::Forward, 4), (Phase::Step, 13)] {
        let program = problem.program("compiled", phase, &bounded(16), &cuda());
        let program = program.unwrap();
        let weights = program.adjacent.iter().flatten().count();
        assert_eq!((program.adjacent.len(), weights), (2 * 2, 2 * (3 + 2)));
        let is_product = |step: &&Step| match step {
            Step::Launch { kernel, .. } => program.kernels[kernel.0].name() == "library.matmul",
            _ => false,
        };
        let products = program.steps.iter().filter(is_product).count();
        // The head has one forward and two with its gradients.
        let of_head = if phase == Phase::Forward { 1 } else { 2 };
        assert_eq!(products, 2 * per_layer + of_head, "{phase}");
    }
}

/// Equal layers are explained once, in all passes, buffers and steps.
#[test]
fn more_layers_are_no_longer_to_read() {
    let lines = |layers: u32, target: [&str; 2]| {
        let place = Place::new(&format!(
            "schema = 1\nname = \"m\"\nabout = \"What is in it?\"\n\
             [case.t]\nworkload = \"transformer\"\nbackends = [\"compiled\"]\n\
             phases = [\"step\"]\nbatch = 1\ncontext = 4\nvocabulary = 5\nd_model = 4\n\
             d_ff = 4\nheads = 1\nlayers = {layers}\n"
        ));
        let [flag, of] = target;
        let args = ["plan", "m.toml", flag, of, "--explain", "compiled step"];
        let output = place.sweeper(&args);
        assert_eq!(code(&output), 0, "{}", text(&output));
        text(&output).lines().count()
    };
    for target in [["--device", "cpu"], ["--arch", "sm_90"]] {
        let short = lines(3, target);
        assert_eq!([5, 8].map(|layers| lines(layers, target)), [short; 2]);
    }
}

/// A program's outputs on a CPU.
fn outputs(words: &Parameters, phase: Phase, inputs: &Tensors) -> Tensors {
    let workload = registry::workload("transformer").unwrap();
    let problem = workload.problem(words, Dtype::F32).unwrap();
    let program = problem.program("compiled", phase, &CanonicalShape::default(), &Target::Cpu);
    run_on_cpu(program.unwrap(), inputs, &problem.outputs(phase), 2, 1)
}

/// A step changes parameters and moments where they are. Each run begins with what was given, also
/// that of another program after it.
#[test]
fn a_step_updates_in_place_and_runs_are_alike() {
    let (problem, _) = problem(&format!("transformer {}", MODELS[0]));
    let inputs = problem.generate(&InputKey([2; 32]));
    let mut device = Cpu::new(2).unwrap();
    device.bind(&inputs).unwrap();
    let mut prepare = |backend: &str, phase| {
        let canonical = CanonicalShape::default();
        let program = problem.program(backend, phase, &canonical, &Target::Cpu);
        let program = program.unwrap();
        let artifacts = artifacts(&program);
        let job = Job {
            program: program.clone(),
            artifacts: &artifacts,
            script: None,
        };
        (device.prepare(job).unwrap(), program)
    };
    let (forward, _) = prepare("eager", Phase::Forward);
    let steps = ["eager", "compiled"].map(|backend| prepare(backend, Phase::Step));
    let run = |device: &mut Cpu, prepared, phase: Phase, iterations| {
        device.sample(prepared, iterations).unwrap();
        device.results(prepared, &problem.outputs(phase)).unwrap()
    };
    let logits = run(&mut device, forward, Phase::Forward, 1);
    for (step, program) in steps {
        let of_role = |role: Role| program.memory_by_role()[&role];
        let parameters = inputs.iter();
        let parameters = parameters.filter(|(name, _)| name.ends_with(".weight"));
        let bytes = |name: &str| inputs[name].shape().iter().product::<usize>() as u64 * 4;
        let all: u64 = parameters.map(|(name, _)| bytes(name)).sum();
        // Moments have the names of parameters, after which they are called.
        assert_eq!(of_role(Role::Parameter) + of_role(Role::Optimizer), all);
        let after = run(&mut device, step, Phase::Step, 1);
        assert_ne!(after["after.ln_final.weight"], inputs["ln_final.weight"]);
        assert!(run(&mut device, step, Phase::Step, 3) == after);
        assert!(run(&mut device, forward, Phase::Forward, 2) == logits);
        let memory = device.memory(step).unwrap();
        assert!(memory.peak_allocated_bytes.abs_diff(program.memory_bytes()) < 64 << 10);
    }
}

/// The mean cross entropy of labels.
fn loss(logits: &Tensor, labels: &[i64]) -> f64 {
    let logits: Vec<f64> = sweeper_program::check::elements(logits).collect();
    let rows = logits.chunks(logits.len() / labels.len());
    let lacks = rows.zip(labels).map(|(row, &label)| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        sum.ln() - row[label as usize]
    });
    lacks.sum::<f64>() / labels.len() as f64
}

#[test]
fn a_model_of_width_256_learns_on_a_cpu() {
    let sizes = [
        ("batch", 2),
        ("context", 8),
        ("vocabulary", 50),
        ("d_model", 256),
        ("d_ff", 320),
        ("layers", 2),
        ("heads", 4),
    ];
    let mut words: Parameters = sizes
        .map(|(name, size)| (name, Value::Int(size)))
        .into_iter()
        .collect();
    words.set("loss", "cross_entropy");
    words.set("rate", Value::Float(0.0002));
    let workload = registry::workload("transformer").unwrap();
    let problem = workload.problem(&words, Dtype::F32).unwrap();
    let mut inputs = problem.generate(&InputKey([4; 32]));
    for (name, tensor) in &mut inputs {
        if name.starts_with("moment") {
            let len = tensor.shape().iter().product();
            *tensor = Tensor::f32(tensor.shape(), vec![0.0; len]);
        }
    }
    let labels = inputs["labels"].as_i64().unwrap().to_vec();
    let mut losses = vec![];
    for count in 1..=5 {
        words.set("step_count", count);
        let logits = &outputs(&words, Phase::Forward, &inputs)["logits"];
        losses.push(loss(logits, &labels));
        for (name, after) in outputs(&words, Phase::Step, &inputs) {
            inputs.insert(name["after.".len()..].to_owned(), after);
        }
    }
    assert!(
        losses.is_sorted_by(|before, after| after < before),
        "{losses:?}"
    );
    assert!(losses[4] < 0.8 * losses[0], "{losses:?}");
    // What was learned is what f64 makes of it.
    let found = outputs(&words, Phase::Forward, &inputs);
    let expected = problem.oracle(&inputs, Phase::Forward);
    let check = problem.check(&inputs, &found, &expected, Phase::Forward);
    assert!(check.passed(), "{:?}", check.tensors);
}

/// A loop hands the parameters of each iteration to the next: three iterations are one after
/// another, each with the results of the one before as its inputs. A sample begins anew.
#[test]
fn loops_carry_parameters_on() {
    let (problem, _) = problem(&format!("transformer {}", MODELS[0]));
    let specs = problem.outputs(Phase::Step);
    let given = problem.generate(&InputKey([3; 32]));
    for backend in ["eager", "compiled"] {
        let canonical = CanonicalShape::default();
        let program = problem.program(backend, Phase::Step, &canonical, &Target::Cpu);
        let program = program.unwrap();
        let artifacts = artifacts(&program);
        let mut device = Cpu::new(1).unwrap();
        let mut run = |inputs: &Tensors, iterations: u32| {
            device.bind(inputs).unwrap();
            let job = Job {
                program: program.clone(),
                artifacts: &artifacts,
                script: None,
            };
            let prepared = device.prepare(job).unwrap();
            let sample = device.run_loop(prepared, iterations).unwrap();
            assert_eq!(sample.iterations, iterations);
            let looped = device.results(prepared, &specs).unwrap();
            device.sample(prepared, 1).unwrap();
            (looped, device.results(prepared, &specs).unwrap())
        };
        let mut inputs = given.clone();
        for _ in 0..3 {
            let (looped, sampled) = run(&inputs, 1);
            assert!(looped == sampled, "{backend}");
            for (name, tensor) in looped {
                let of = name.strip_prefix("after.").unwrap();
                inputs.insert(of.to_owned(), tensor);
            }
        }
        let (looped, sampled) = run(&given, 3);
        for (name, tensor) in &looped {
            assert!(
                inputs[name.strip_prefix("after.").unwrap()] == *tensor,
                "{backend} {name}"
            );
        }
        assert!(sampled != looped, "{backend}");
    }
}

/// `measure.loops` measures whole loops, on a CPU too.
#[test]
fn loops_are_measured_as_a_whole() {
    let place = Place::new(
        r#"
schema = 1
name = "loops"
about = "how long are whole loops?"
[case.step]
workload = "transformer"
backends = ["eager", "compiled"]
phases = ["step"]
batch = 1
context = 8
vocabulary = 16
d_model = 16
d_ff = 16
layers = 1
heads = 2
[measure]
repeats = 2
loops = [20, 1]
[device]
use = "cpu"
"#,
    );
    let run = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&run), 0, "{}", text(&run));
    let records = place.read("records.csv");
    let rows: Vec<Vec<&str>> = records
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    let column = |name: &str| rows[0].iter().position(|held| *held == name).unwrap();
    let of = |name: &str| {
        rows[1..]
            .iter()
            .map(|row| row[column(name)])
            .collect::<Vec<_>>()
    };
    assert_eq!(of("mode"), ["loop:1", "loop:20", "loop:1", "loop:20"]);
    assert_eq!(of("iterations"), ["1", "20", "1", "20"]);
    assert_eq!(of("status"), ["ok"; 4]);
    assert_eq!(of("checked"), ["full"; 4]);
    assert_eq!(of("l2"), ["hot"; 4]);
}
