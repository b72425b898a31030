//! Files that can't be read, and the files that a manifest refers to.

use std::fs;
use std::path::Path;

use sweeper::grid::Grid;
use sweeper::manifest::diagnostics::Code;
use sweeper::manifest::{Overrides, Sources};
use sweeper_program::Value;

use crate::support::{resolve, semicrf};

fn code(path: &Path) -> (Code, String) {
    let errors = resolve(path, &Overrides::new()).unwrap_err();
    let first = errors.iter().next().unwrap().code;
    (first, errors.to_string())
}

#[test]
fn bad_surroundings_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("paper.toml"), "").unwrap();
    fs::write(path("latin.toml"), b"name = \"caf\xe9\"").unwrap();
    let (directory, text) = code(folder.path());
    assert_eq!(directory, Code::Directory);
    assert!(text.contains("paper.toml"), "{text}");
    let (missing, text) = code(&path("papr.toml"));
    assert_eq!(missing, Code::NotFound);
    assert!(
        text.contains("did you mean") && text.contains("paper.toml"),
        "{text}"
    );
    assert_eq!(code(&path("paper.toml")).0, Code::Empty);
    let (latin, text) = code(&path("latin.toml"));
    assert_eq!(latin, Code::NotText);
    assert!(text.contains("byte 11"), "{text}");
    let (missing, text) = code(Path::new("papre"));
    assert_eq!(missing, Code::NotFound);
    assert!(text.contains("manifests/paper.toml"), "{text}");
}

#[test]
fn a_file_over_100_mb_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.toml");
    fs::File::create(&path)
        .unwrap()
        .set_len(200_000_000)
        .unwrap();
    assert_eq!(code(&path).0, Code::TooLarge);
}

#[test]
fn manifests_that_extend_each_other_are_a_cycle() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.toml"), "schema = 1\nextends = \"b.toml\"\n").unwrap();
    fs::write(path("b.toml"), "schema = 1\nextends = \"./a.toml\"\n").unwrap();
    let (cycle, text) = code(&path("a.toml"));
    assert_eq!(cycle, Code::ExtendsCycle);
    assert!(text.contains("b.toml:2:11"), "{text}");
    fs::write(path("c.toml"), "schema = 1\nextends = \"nowhere.toml\"\n").unwrap();
    let (missing, text) = code(&path("c.toml"));
    assert_eq!(missing, Code::NotFound);
    assert!(
        text.contains("c.toml:2:11") && text.contains("extended here"),
        "{text}"
    );
    fs::write(path("d.toml"), "schema = 1\nextends = 3\n").unwrap();
    assert_eq!(code(&path("d.toml")).0, Code::WrongType);
}

#[test]
fn tables_and_tensors_come_with_their_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    fs::write(folder.path().join("shapes.csv"), "T, K\n128, 4\n256, 8\n").unwrap();
    fs::write(folder.path().join("case.safetensors"), "tensors").unwrap();
    let text = semicrf(
        "C = 3",
        "inputs = \"case.safetensors\"\n[[zip]]\n\
         axes = { T = { csv = \"shapes.csv\", col = \"T\" }, K = { csv = \"shapes.csv\", col = \"K\" } }\n",
    );
    fs::write(&path, &text).unwrap();
    let sources = Sources::read(&path).unwrap();
    let digests: Vec<_> = sources
        .tables()
        .map(|(_, table)| table.digest.hex())
        .collect();
    let digest = "99bb94d10305d4fd7a9f2f1b9f46c473f412b2cd83f7c312bc441c215bd57c86";
    assert_eq!(digests, [digest]);
    let manifest = resolve(&path, &Overrides::new()).unwrap_or_else(|errors| panic!("{errors}"));
    let inputs = manifest.cases[0].inputs.clone().unwrap();
    assert!(inputs.path.is_absolute());
    let digest = "26cc73f9fbf623d9a49bbf3f3d88f70195f2de68d7f25b5161f6700e6644cf44";
    assert_eq!(inputs.digest.hex(), digest);
    let grid = Grid::new(&manifest);
    let shapes: Vec<_> = grid
        .points()
        .iter()
        .map(|point| grid.value(*point, "K"))
        .collect();
    assert_eq!(shapes, [Some(Value::Int(4)), Some(Value::Int(8))]);
    let before = grid.problem_id(0);
    fs::write(folder.path().join("case.safetensors"), "others").unwrap();
    let manifest = resolve(&path, &Overrides::new()).unwrap();
    assert_ne!(Grid::new(&manifest).problem_id(0), before);
}

/// Texts may name files whose contents are part of the identity; nobody sends them to strangers.
#[test]
fn what_texts_name_is_kept_from_functions_that_nobody_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    let text = "schema = 1\n[workload.w]\nparams = { n = { int = [1, 9] } }\n\
        inputs.x = { dtype = \"f32\", shape = [\"n\"] }\noutputs.y = { dtype = \"f32\", shape = [\"n\"] }\n\
        check = { reference = { expr = \"x\" } }\n[backend.b]\nworkload = \"w\"\npython = \"f.py\"\n\
        entry = \"f\"\narrays = \"numpy\"\nargs = [\"x\"]\nreturns = [\"y\"]\nTRUST\n\
        [case.w]\nworkload = \"w\"\ngrid = { n = 3 }\n";
    let named = "open('secret.txt').read()\ndef f(x): return x\n";
    fs::write(folder.path().join("f.py"), named).unwrap();
    fs::write(folder.path().join("secret.txt"), "the secret").unwrap();
    for (trust, is_sent) in [("", true), ("trust = false", false)] {
        fs::write(&path, text.replace("TRUST", trust)).unwrap();
        let manifest =
            resolve(&path, &Overrides::new()).unwrap_or_else(|errors| panic!("{errors}"));
        let declared: String = manifest.declared().map(|it| it.json().to_owned()).collect();
        assert!(declared.contains("def f(x)"), "{declared}");
        assert_eq!(declared.contains("the secret"), is_sent, "{declared}");
    }
}
