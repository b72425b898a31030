//! Times of the engine outside of measuring: 100,000 points expanded, hashed, bucketed and planned,
//! as a whole and by step. `cargo bench --bench engine`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::time::Instant;

use sweeper::grid::Grid;
use sweeper::hardware::DeviceKind;
use sweeper::manifest::{Manifest, Overrides, Sources, registry};
use sweeper::plan::{Outline, Plan, PlanDevice};
use sweeper_program::Target;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc; // as in the program

const MANIFEST: &str = include_str!("engine.toml");
const REPEATS: usize = 9;

fn main() {
    let sources = Sources::from_text("engine.toml", MANIFEST);
    let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry())
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    let device = || PlanDevice {
        kind: DeviceKind::Null,
        target: Target::Cpu,
    };
    println!("{} points", Grid::new(&manifest).points().len());
    let grid_ms = median_ms(|| Grid::new(&manifest).points().len());
    let outline_ms = median_ms(|| Outline::new(&manifest, device()).points().len());
    let plan_ms = median_ms(|| Plan::new(&manifest, device()).points.len());
    println!("grid: expand, hash            {grid_ms:8.1} ms");
    println!(
        "outline: + buckets, ids       {outline_ms:8.1} ms  {:.2} of a plan",
        outline_ms / plan_ms
    );
    println!("plan: + programs and kernels  {plan_ms:8.1} ms");
}

fn median_ms(mut work: impl FnMut() -> usize) -> f64 {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}
