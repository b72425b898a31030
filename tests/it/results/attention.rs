//! Attention, operation by operation and without the scores in memory.

use super::record::{Row, Rows};
use super::table::{Table, ratio, three};

const RECORD: &str = "2026-11-24-h200-attention";
/// Products in f32, by later kernels.
const RECORD_IN_F32: &str = "2026-11-26-h200-attention-f32";

/// Times and memory of both variants by precision, width and length, forward and with gradients.
pub(super) fn eager_and_compiled() -> String {
    let rows = Rows::read(RECORD, "records.csv");
    let in_f32 = Rows::read(RECORD_IN_F32, "now-records.csv");
    let mut table = Table::new(&[
        "products",
        "d",
        "S",
        "phase",
        "`eager` ms",
        "`compiled` ms",
        "speedup",
        "Tflop/s",
        "error, relative L2",
        "MB",
    ]);
    for precision in ["f32", "tf32", "bf16"] {
        for dimension in ["64", "128"] {
            for sequence in ["1024", "8192"] {
                for phase in ["forward", "both"] {
                    let rows = if precision == "f32" { &in_f32 } else { &rows };
                    let of = |backend| {
                        rows.one(&[
                            ("precision", precision),
                            ("mask", "none"),
                            ("dimension", dimension),
                            ("sequence", sequence),
                            ("phase", phase),
                            ("backend", backend),
                        ])
                    };
                    let (eager, compiled) = (of("eager"), of("compiled"));
                    let megabytes = |row: &Row| three(row.number("peak_allocated_bytes") / 1e6);
                    table.line([
                        precision.to_owned(),
                        dimension.to_owned(),
                        sequence.to_owned(),
                        phase.to_owned(),
                        format!("{}{}", three(eager.median() / 1e6), eager.marks()),
                        format!("{}{}", three(compiled.median() / 1e6), compiled.marks()),
                        ratio(eager.median() / compiled.median()),
                        format!("{:.0}", compiled.number("flops") / compiled.median() / 1e3),
                        format!("{:.1e}", compiled.number("worst_error")),
                        format!("{} / {}", megabytes(eager), megabytes(compiled)),
                    ]);
                }
            }
        }
    }
    table.text()
}

/// Attention by kernels of this build and by functions in Python, in the rounds of one run.
pub(super) fn in_rounds_with_pytorch() -> String {
    let rows = Rows::read("2026-11-25-h200-attention-torch", "records.csv");
    let mut table = Table::new(&[
        "S",
        "mask",
        "phase",
        "`eager`",
        "`compiled`",
        "PyTorch, operations",
        "torch.compile",
        "PyTorch, SDPA",
    ]);
    for sequence in ["512", "2048"] {
        for mask in ["none", "causal"] {
            for phase in ["forward", "both"] {
                let of = |backend| {
                    let row = rows.one(&[
                        ("sequence", sequence),
                        ("mask", mask),
                        ("phase", phase),
                        ("backend", backend),
                    ]);
                    three(row.median() / 1e6)
                };
                table.line([
                    sequence.to_owned(),
                    mask.to_owned(),
                    phase.to_owned(),
                    of("eager"),
                    of("compiled"),
                    of("torch_plain"),
                    of("torch_compile_plain"),
                    of("torch_sdpa"),
                ]);
            }
        }
    }
    table.text()
}

/// Attention in bf16 by cuDNN and by kernels of this build, in the rounds of one run.
pub(super) fn beside_cudnn() -> String {
    let rows = Rows::read("2026-11-26-h100-attention-cudnn", "records.csv");
    let mut table = Table::new(&[
        "d",
        "S",
        "mask",
        "phase",
        "`library` us",
        "`compiled` us",
        "`library` / `compiled`",
        "error, relative L2",
    ]);
    for dimension in ["64", "128"] {
        for sequence in ["1024", "4096", "8192"] {
            for mask in ["none", "causal"] {
                for phase in ["forward", "both"] {
                    let of = |backend| {
                        rows.one(&[
                            ("dimension", dimension),
                            ("sequence", sequence),
                            ("mask", mask),
                            ("phase", phase),
                            ("backend", backend),
                        ])
                    };
                    let (library, compiled) = (of("library"), of("compiled"));
                    let error = |row: &Row| format!("{:.1e}", row.number("worst_error"));
                    table.line([
                        dimension.to_owned(),
                        sequence.to_owned(),
                        mask.to_owned(),
                        phase.to_owned(),
                        format!("{}{}", three(library.median() / 1e3), library.marks()),
                        format!("{}{}", three(compiled.median() / 1e3), compiled.marks()),
                        format!("{:.2}", library.median() / compiled.median()),
                        format!("{} / {}", error(library), error(compiled)),
                    ]);
                }
            }
        }
    }
    table.text()
}

/// Attention by products of warpgroups, by two programs, and by products of warps.
pub(super) fn by_warps_and_warpgroups() -> String {
    let [before, warpgroups, warps] = ["before", "warpgroups", "warps"].map(|run| {
        Rows::read(
            "2026-11-26-h100-attention-warps",
            &format!("{run}-records.csv"),
        )
    });
    let mut table = Table::new(&[
        "products",
        "d",
        "S",
        "mask",
        "phase",
        "warpgroups before us",
        "warpgroups us",
        "warps us",
        "warps / warpgroups",
    ]);
    for precision in ["tf32", "bf16"] {
        for dimension in ["64", "128"] {
            for sequence in ["1024", "8192"] {
                for mask in ["none", "causal"] {
                    for phase in ["forward", "both"] {
                        let of = |rows: &Rows| {
                            let row = rows.one(&[
                                ("precision", precision),
                                ("dimension", dimension),
                                ("sequence", sequence),
                                ("mask", mask),
                                ("phase", phase),
                            ]);
                            (row.median(), three(row.median() / 1e3))
                        };
                        let of_warpgroups = of(&warpgroups);
                        let of_warps = of(&warps);
                        table.line([
                            precision.to_owned(),
                            dimension.to_owned(),
                            sequence.to_owned(),
                            mask.to_owned(),
                            phase.to_owned(),
                            of(&before).1,
                            of_warpgroups.1,
                            of_warps.1,
                            format!("{:.2}", of_warps.0 / of_warpgroups.0),
                        ]);
                    }
                }
            }
        }
    }
    table.text()
}

/// The numerics that ran: a product of coarser factors is off by more, at every size.
#[test]
fn coarser_factors_are_less_exact() {
    let rows = Rows::read(RECORD, "records.csv");
    for row in rows.all(&[("precision", "bf16"), ("status", "ok")]) {
        let words = ["dimension", "sequence", "phase", "backend"];
        let error_in = |precision| {
            let mut wanted: Vec<(&str, &str)> = vec![("precision", precision)];
            wanted.extend(words.map(|word| (word, row.text(word))));
            rows.one(&wanted).number("worst_error")
        };
        let [exact, coarse, coarsest] = ["f32", "tf32", "bf16"].map(error_in);
        assert!(10.0 * exact < coarse && 2.0 * coarse < coarsest);
    }
}

/// Attention in f32 before and since blocks share the keys of a tile.
pub(super) fn of_short_sequences() -> String {
    let phases = [("forward", "forward"), ("both", "with gradients")];
    before_and_now("2026-11-26-h100-attention-f32", &phases)
}

/// Attention in f32 before and since halves of a block's warps wait for each other only where they
/// must.
pub(super) fn by_halves() -> String {
    let phases = [("backward", "gradients"), ("both", "forward and gradients")];
    before_and_now(RECORD_IN_F32, &phases)
}

/// Two programs of one record at short and long sequences, in microseconds, in phases by their
/// names and those in the table.
fn before_and_now(record: &str, phases: &[(&str, &str)]) -> String {
    let mut head = ["mask", "d", "S"].map(str::to_owned).to_vec();
    for (_, name) in phases {
        let eager = format!("`eager` {name} us");
        head.extend([eager, "before".to_owned(), "now".to_owned()]);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new(&head);
    let [before, now] =
        ["before", "now"].map(|run| Rows::read(record, &format!("{run}-records.csv")));
    for mask in ["none", "causal"] {
        for dimension in ["64", "128"] {
            for sequence in ["256", "512", "1024", "2048", "4096", "8192"] {
                let us = |rows: &Rows, backend, phase| {
                    let row = rows.one(&[
                        ("mask", mask),
                        ("dimension", dimension),
                        ("sequence", sequence),
                        ("backend", backend),
                        ("phase", phase),
                    ]);
                    three(row.median() / 1e3)
                };
                let mut line = [mask, dimension, sequence].map(str::to_owned).to_vec();
                for (phase, _) in phases {
                    line.extend([
                        us(&now, "eager", phase),
                        us(&before, "compiled", phase),
                        us(&now, "compiled", phase),
                    ]);
                }
                table.line(line);
            }
        }
    }
    table.text()
}
