//! Tuning problems in the T1 format (schema 1.0.0, of Kernel Tuner, KTT and BAT) as manifests.
//!
//! What a file declares is not always what its tool runs. Where it can mean two things, the
//! manifest has one of them and a comment with a `?`.

mod draft;
mod file;
mod space;

use std::fmt::Write;

use serde_json::Value as Json;

use draft::{Draft, name_of};
use file::{File, Specification, names, problem_size, tuned};
use space::space;
use sweeper_model::expression::Tree;
use sweeper_model::toml_text::{in_comment, string};

/// The manifest of a T1 file; `source_folder` leads from the manifest to the kernel's file.
///
/// # Errors
/// A sentence: what can't be imported, and why.
pub fn manifest(text: &str, source_folder: &str) -> Result<String, String> {
    let file: File = serde_json::from_str(text).map_err(|error| format!("no T1 file: {error}"))?;
    let kernel = &file.kernel_specification;
    if !kernel.language.eq_ignore_ascii_case("cuda") {
        return Err(format!(
            "a kernel in {} can't be run here, only CUDA",
            kernel.language
        ));
    }
    let tuned = tuned(&file.configuration_space)?;
    let mut draft = Draft {
        names: names(kernel, &tuned)?,
        inputs: String::new(),
        outputs: String::new(),
        args: Vec::new(),
        constants: Vec::new(),
    };
    for argument in &kernel.arguments {
        draft
            .argument(argument)
            .map_err(|reason| format!("argument `{}`: {reason}", argument.name))?;
    }
    let name = name_of(&kernel.kernel_name);
    let mut out = format!(
        "schema = 1\n\n# Imported from a T1 file. Lines with a `?` are doubts: look at each.\n\n\
         [workload.{name}]\n{}{}check     = {{ reference = \"none\" }}   # ? {}: say what is \
         right, such as {{ expr = \"2 * x\" }}\n",
        draft.inputs,
        draft.outputs,
        references(kernel)
    );
    let _ = write!(
        out,
        "\n[backend.{name}_cuda]\nworkload = \"{name}\"\ncuda     = {}\nentry    = {}\n\
         args     = [{}]\n",
        string(&format!("{source_folder}{}", kernel.kernel_file)),
        string(&kernel.kernel_name),
        draft.args.join(", ")
    );
    if !draft.constants.is_empty() {
        let _ = writeln!(out, "constants = {{ {} }}", draft.constants.join(", "));
    }
    geometry(&mut out, kernel)?;
    space(&mut out, &file.configuration_space, &tuned);
    options(&mut out, &kernel.compiler_options);
    let _ = write!(out, "\n[case.{name}]\nworkload = \"{name}\"\n");
    Ok(out)
}

/// `grid`, `block` and `shared`.
fn geometry(out: &mut String, kernel: &Specification) -> Result<(), String> {
    let local = |axis: &str| kernel.local_size.get(axis).map_or("1".to_owned(), shown);
    let block = ["X", "Y", "Z"].map(local);
    let (grid, doubt) = match (&kernel.problem_size, &kernel.global_size) {
        (Some(size), global) => {
            let size = problem_size(size)?;
            let divisors = [&kernel.grid_div_x, &kernel.grid_div_y, &kernel.grid_div_z];
            let blocks = |axis: usize| {
                let size = size.get(axis).copied().unwrap_or(1);
                match divisors[axis].as_slice() {
                    [] => size.to_string(),
                    divisors => format!("ceil_div({size}, {})", divisors.join(" * ")),
                }
            };
            let doubt = match global {
                Some(_) => "   # ? of two geometries, ProblemSize: what Kernel Tuner runs",
                None => "",
            };
            ([0, 1, 2].map(blocks), doubt)
        }
        (None, Some(global)) => {
            let size = |axis: &str| global.get(axis).map_or("1".to_owned(), shown);
            let is_threads = kernel.global_size_type.as_deref() == Some("OpenCL");
            let axes = ["X", "Y", "Z"];
            let blocks = std::array::from_fn(|at| match is_threads {
                true if block[at] != "1" => format!("ceil_div({}, {})", size(axes[at]), block[at]),
                _ => size(axes[at]),
            });
            let doubt = match is_threads {
                true => "   # ? GlobalSizeType is OpenCL: threads, not blocks",
                false => "   # ? rounded down where a block does not divide it: a tail is left out",
            };
            (blocks, doubt)
        }
        (None, None) => return Err("it has neither ProblemSize nor GlobalSize".to_owned()),
    };
    let list = |extents: &[String; 3]| -> Result<String, String> {
        for extent in extents {
            Tree::parse(extent)
                .map_err(|error| format!("the size `{extent}`: {}", error.message))?;
        }
        let used = extents
            .iter()
            .rposition(|extent| extent != "1")
            .map_or(1, |at| at + 1);
        let quoted = extents[..used].iter().map(|extent| string(extent));
        Ok(quoted.collect::<Vec<_>>().join(", "))
    };
    let _ = writeln!(out, "grid     = [{}]{doubt}", list(&grid)?);
    let _ = writeln!(out, "block    = [{}]", list(&block)?);
    match kernel.shared_memory.as_ref().map(shown) {
        Some(shared) if shared != "0" && shared != "null" => {
            let _ = writeln!(out, "shared   = {}", string(&shared));
        }
        _ => {}
    }
    Ok(())
}

/// JSON as the text of an expression.
fn shown(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the file says of right results, none of which can be imported.
fn references(kernel: &Specification) -> String {
    if kernel.reference_arguments.is_empty() && kernel.reference_kernels.is_empty() {
        return "the file has no reference".to_owned();
    }
    let told = kernel.reference_arguments.iter().map(|one| {
        let target = one.target_name.as_deref().unwrap_or("an argument");
        let source = one.data_source.as_deref().unwrap_or("another kernel");
        format!(" ({target} by {source})")
    });
    let told: String = told.collect();
    in_comment(&format!("its reference is left out{told}"))
}

/// `options`: what NVRTC takes, without the standard, which every kernel has.
fn options(out: &mut String, options: &[String]) {
    let words = options.iter().flat_map(|option| option.split_whitespace());
    let kept = words.filter(|option| !option.contains("std="));
    let whole = |option: &str| match option.trim_start_matches('-') {
        // Of one letter, with its value behind it.
        name if name.starts_with(['D', 'I', 'U']) => format!("-{name}"),
        name => format!("--{name}"),
    };
    let kept: Vec<String> = kept.map(|option| string(&whole(option))).collect();
    if !kept.is_empty() {
        let _ = writeln!(out, "options  = [{}]", kept.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::names::{assert_unharmed, hostile_variants};

    /// A file in the form of BAT's, with what makes them doubtful.
    const FILE: &str = r#"{
        "General": { "BenchmarkName": "points" },
        "ConfigurationSpace": {
            "TuningParameters": [
                { "Name": "block_size_x", "Type": "int", "Values": "list(range(32, 128+1, 32))", "Default": 64 },
                { "Name": "tile", "Type": "int", "Values": "[1] + [2*i for i in range(1,3)]", "Default": 1 }
            ],
            "Conditions": [
                { "Expression": "block_size_x * tile <= 256", "Parameters": ["block_size_x", "tile"] },
                { "Expression": "1 < tile < 9", "Parameters": ["tile"] }
            ]
        },
        "KernelSpecification": {
            "Language": "CUDA", "CompilerOptions": ["", "-std=c++11 -DN=2", "-use_fast_math"],
            "KernelName": "points", "KernelFile": "points.cu", "GlobalSizeType": "OpenCL",
            "LocalSize": { "X": "block_size_x", "Y": "1", "Z": "1" },
            "GlobalSize": { "X": "(2000 // block_size_x)+1", "Y": "1", "Z": "1" },
            "ProblemSize": 2000, "GridDivX": ["block_size_x", "tile"], "GridDivY": [], "SharedMemory": 0,
            "Arguments": [
                { "Name": "bitmap", "Type": "int32", "Size": 2000, "MemoryType": "Vector", "AccessType": "WriteOnly", "FillType": "Constant", "FillValue": 0.0 },
                { "Name": "at", "Type": "float", "Size": "2 * ProblemSize[0]", "MemoryType": "Vector", "AccessType": "ReadOnly", "FillType": "Random", "FillValue": 1.0 },
                { "Name": "sum", "Type": "double", "Size": 1, "MemoryType": "Vector", "AccessType": "ReadWrite", "FillType": "Constant", "FillValue": 0.0, "Output": 1 },
                { "Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 2000 }
            ]
        }
    }"#;

    #[test]
    fn a_file_becomes_a_manifest_that_people_read() {
        let text = manifest(FILE, "kernels/").unwrap();
        let expected = r#"schema = 1

# Imported from a T1 file. Lines with a `?` are doubts: look at each.

[workload.points]
inputs.at = { dtype = "f32", shape = [4000] }   # ? Random: normal in Kernel Tuner and here, uniform(0, FillValue) in KTT
outputs.bitmap = { dtype = "i32", shape = [2000] }
outputs.sum = { dtype = "f64", shape = [1], init = 0.0 }
check     = { reference = "none" }   # ? the file has no reference: say what is right, such as { expr = "2 * x" }

[backend.points_cuda]
workload = "points"
cuda     = "kernels/points.cu"
entry    = "points"
args     = ["bitmap", "at", "sum", { i32 = 2000 }]
grid     = ["ceil_div(2000, block_size_x * tile)"]   # ? of two geometries, ProblemSize: what Kernel Tuner runs
block    = ["block_size_x"]
defines  = { kernel_tuner = 1, block_size_x = "block_size_x", tile = "tile" }
require  = [
    "block_size_x * tile <= 256",
    # ? left out, comparisons can't be chained: 1 < tile < 9
]
tune.block_size_x = [64, 32, 96, 128]
tune.tile = [1, 2, 4]
options  = ["-DN=2", "--use_fast_math"]

[case.points]
workload = "points"
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn what_lies_in_constant_memory_is_no_argument() {
        let constant = "\"Name\": \"at\", \"MemType\": \"Constant\",";
        let text = manifest(&FILE.replace("\"Name\": \"at\",", constant), "").unwrap();
        assert!(text.contains("constants = { at = \"at\" }\n"), "{text}");
        assert!(text.contains("inputs.at = { dtype"), "{text}");
        let args = text.lines().find(|line| line.starts_with("args")).unwrap();
        assert!(!args.contains("\"at\""), "{args}");
    }

    #[test]
    fn conditions_and_generators_are_read_as_python_writes_them() {
        for (condition, is_kept) in [
            ("tile in (1, 2, 4)", true),
            ("block_size_x >= (128 if tile == 2 else 64)", true),
            ("block_size_x <= 1 << 7", true),
            ("1024 / block_size_x == int(1024 / block_size_x)", true),
            // Values that are true or false are 1 and 0.
            ("not tile or block_size_x == 64", false),
            ("block_size_x * tile", false),
        ] {
            let text = manifest(&FILE.replace("1 < tile < 9", condition), "").unwrap();
            let kept = format!("    {},\n", string(condition));
            assert_eq!(text.contains(&kept), is_kept, "{condition}: {text}");
            assert_eq!(
                text.contains("# ? left out"),
                !is_kept,
                "{condition}: {text}"
            );
        }
        let generator =
            "\"FillType\": \"Generator\", \"DataSource\": \"1 + i if i % 4 < 3 else 0.5 * i\"";
        let random = "\"FillType\": \"Random\", \"FillValue\": 1.0";
        let text = manifest(&FILE.replace(random, generator), "").unwrap();
        assert!(
            text.contains("\"1 + i if i % 4 < 3 else 0.5 * i\""),
            "{text}"
        );
    }

    #[test]
    fn a_reference_that_is_left_out_is_told() {
        let told = "\"ReferenceArguments\": [{ \"TargetName\": \"sum\", \"DataSource\": \"2 * i\" }], \
                    \"Arguments\":";
        let text = manifest(&FILE.replace("\"Arguments\":", told), "").unwrap();
        assert!(
            text.contains("# ? its reference is left out (sum by 2 * i): say what is right"),
            "{text}"
        );
    }

    #[test]
    fn hostile_texts_become_no_structure() {
        let variants = hostile_variants(FILE);
        let written = variants.iter().filter_map(|file| manifest(file, "").ok());
        let written: Vec<String> = written.collect();
        assert!(written.len() > variants.len() / 4, "{}", written.len());
        written
            .iter()
            .for_each(|manifest| assert_unharmed(manifest));
    }

    #[test]
    fn what_can_not_be_imported_is_named() {
        let complaint = |from: &str, to: &str| manifest(&FILE.replace(from, to), "").unwrap_err();
        for (from, to, reason) in [
            (
                "\"CUDA\", \"Comp",
                "\"OpenCL\", \"Comp",
                "a kernel in OpenCL can't be run here",
            ),
            (
                "\"Random\"",
                "\"BinaryRaw\"",
                "argument `at`: a fill from `BinaryRaw`",
            ),
            (
                "\"double\"",
                "\"float4\"",
                "argument `sum`: the type `float4` is not known",
            ),
            (
                "\"2 * ProblemSize[0]\"",
                "\"2 * k\"",
                "argument `at`: `2 * k`: `k` is not known",
            ),
            ("[1] + [2*i", "[1] + [eval(i)", "`tile`: `[1] + [eval(i)"),
            ("ConfigurationSpace", "Space", "no T1 file"),
        ] {
            let found = complaint(from, to);
            assert!(found.starts_with(reason), "{found}");
        }
    }
}
