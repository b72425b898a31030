//! PyTorch on a CPU: functions of a package, of a file, and gradients.

use super::{copied, rows};
use crate::place::text;
use crate::support::has_package;

#[test]
fn pytorch_computes_what_the_oracle_says() {
    if !has_package("torch", "torch") {
        return;
    }
    let folder = copied();
    let ran = folder.sweeper(&["run", "torch.toml"]);
    let rows = rows(&folder);
    for name in [
        "eager forward",
        "eager both",
        "torch_softmax forward",
        "torch_softmax backward",
        "torch_softmax both",
        "of_file forward",
        "own_gradient backward",
    ] {
        let row = &rows[name];
        assert_eq!(
            row["status"],
            "ok",
            "{name}: {}\n{}",
            row["reason"],
            text(&ran)
        );
        assert_eq!(row["checked"], "full", "{name}");
    }
}
