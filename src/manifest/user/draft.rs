//! A manifest to start from, written from the signature of a kernel.

use sweeper_program::Dtype;
use sweeper_workloads::registry;

use super::declaration::DeclaredLanguage;
use super::real_types::can_be_in_f64;
use super::signature::{Parameter, Signature};
use sweeper_model::toml_text::{in_comment, string};

/// Names of sizes that functions commonly have, the most telling first.
const SIZES: [&str; 7] = ["n", "size", "len", "length", "count", "elements", "numel"];

/// The tuned value of kernels in CUDA.
const BLOCK_SIZE: &str = "block_size";

/// The manifest of a kernel in the file `source`, and of others that take the same arguments: they
/// are backends of one workload, judged by the first. What the signature does not say is a comment
/// that begins with `?`.
pub fn manifest(
    (source, source_text): (&str, &str),
    (signature, others): (&Signature, &[String]),
    language: DeclaredLanguage,
) -> String {
    let kernel = &signature.name;
    // A workload of this build is not a name for another problem.
    let workload = match registry::workload(kernel) {
        Some(_) => format!("my_{kernel}"),
        None => kernel.clone(),
    };
    let suffix = match language {
        DeclaredLanguage::Cuda => "cuda",
        DeclaredLanguage::C => "c",
    };
    let backend = format!("{kernel}_{suffix}");
    // A kernel that takes the size of its blocks takes the tuned one.
    let is_tuned = |it: &&Parameter| language == DeclaredLanguage::Cuda && it.name == BLOCK_SIZE;
    let whole = scalars(signature).filter(|it| is_whole(it) && !is_tuned(it));
    let whole: Vec<&Parameter> = whole.collect();
    let size = SIZES
        .iter()
        .find_map(|name| whole.iter().find(|it| it.name.eq_ignore_ascii_case(name)))
        .or(whole.first())
        .map_or("n", |it| &*it.name);
    let mut text = format!(
        "schema = 1\n\n# Written from the signature of `{kernel}`. Lines with a `?` are guesses: \
         look at each.\n\n[workload.{workload}]\n"
    );
    text += &format!(
        "params    = {{ {} }}\n",
        parameters(scalars(signature).filter(|it| !is_tuned(it)), size).join(", ")
    );
    tensors(&mut text, signature, size);
    let types = || signature.parameters.iter().map(|it| it.dtype);
    let in_f64 = can_be_in_f64(source_text)
        && signature.template.is_empty()
        && types().all(|dtype| dtype.is_some())
        && types().any(|dtype| dtype == Some(Dtype::F32));
    text += &check(others, &backend, language, in_f64);
    text += &format!("\n[backend.{backend}]\nworkload = \"{workload}\"\n");
    text += &match language {
        DeclaredLanguage::Cuda => format!("cuda     = {}\n", string(source)),
        DeclaredLanguage::C => format!("c        = {}\n", string(source)),
    };
    text += &entry(signature);
    text += &doubts(signature);
    text += &format!("args     = [{}]\n", arguments(signature).join(", "));
    if language == DeclaredLanguage::Cuda {
        text += &format!(
            "grid     = \"ceil_div({size}, {BLOCK_SIZE})\"             # ? an element a thread\n\
             block    = \"{BLOCK_SIZE}\"\n\
             tune     = {{ {BLOCK_SIZE} = [64, 128, 256, 512, 1024] }}\n"
        );
        if source_text.contains("extern __shared__") {
            text += &format!("shared   = \"4 * {BLOCK_SIZE}\"   # ? a float for each thread\n");
        }
    }
    for other in others {
        text += &format!(
            "\n[backend.{other}_{suffix}]\nlike     = \"{backend}\"\nentry    = \"{other}\"\n"
        );
    }
    text += &format!("\n[case.{workload}]\nworkload = \"{workload}\"\ngrid     = {{ ");
    let axes = axes(&whole, size);
    text + &axes.join(", ") + " }\n"
}

/// Sizes from one that a first-level cache holds to one that no cache holds.
const MANY_SIZES: &str = "[1000, 10000, 100000, 1000000, 10000000]";

/// The grid: many sizes, and one value of each other whole number.
fn axes(whole: &[&Parameter], size: &str) -> Vec<String> {
    match whole {
        [] => vec![format!("n = {MANY_SIZES}")],
        whole => whole
            .iter()
            .map(|it| match it.name == size {
                true => format!("{size} = {MANY_SIZES}"),
                false => format!("{} = 1", it.name),
            })
            .collect(),
    }
}

/// What is right: the first kernel's own text in f64 where it can be that, else what the first
/// does; nobody knows of one kernel.
fn check(others: &[String], backend: &str, language: DeclaredLanguage, in_f64: bool) -> String {
    let first = match language {
        DeclaredLanguage::C => backend.to_owned(),
        DeclaredLanguage::Cuda => format!("{backend}{{block_size=256}}"),
    };
    match (in_f64, others) {
        (true, _) => format!(
            "# ? Its own text with double for float: this shows what rounding does, and no mistake \
             in its formula.\n# A formula shows both: {{ expr = \"2 * x\" }}.\n\
             check     = {{ reference = {{ backend = \"{first}\", dtype = \"f64\" }} }}\n"
        ),
        (false, []) => "check     = { reference = \"none\" }                # ? the right answer, \
                        such as { expr = \"2 * x\" }\n"
            .to_owned(),
        (false, _) => format!(
            "check     = {{ reference = {{ backend = \"{first}\" }}, tolerance = 1e-5 }}   # ? says \
             that both do the same; a formula says what is right\n"
        ),
    }
}

fn scalars(signature: &Signature) -> impl Iterator<Item = &Parameter> {
    signature.parameters.iter().filter(|it| !it.is_pointer)
}

/// Whether the draft has it as a whole number, as one of a type that is not known, too.
fn is_whole(parameter: &Parameter) -> bool {
    parameter
        .dtype
        .is_none_or(|dtype| !dtype.is_real() && dtype != Dtype::Bool)
}

fn parameters<'a>(scalars: impl Iterator<Item = &'a Parameter>, size: &str) -> Vec<String> {
    let mut is_there = false;
    let mut found: Vec<String> = scalars
        .inspect(|it| is_there |= it.name == size)
        .map(|it| match it.dtype {
            Some(Dtype::Bool) => format!("{} = {{ bool = true, default = true }}", it.name),
            Some(dtype) if dtype.is_real() => {
                format!("{} = {{ float = [-1e9, 1e9], default = 1.0 }}", it.name)
            }
            _ => format!("{} = {{ int = [1, 2147483647] }}", it.name),
        })
        .collect();
    if !is_there {
        found.push(format!("{size} = {{ int = [1, 2147483647] }}"));
    }
    found
}

fn tensors(text: &mut String, signature: &Signature, size: &str) {
    for it in signature.parameters.iter().filter(|it| it.is_pointer) {
        let (kind, doubt) = match (it.is_const, it.is_read) {
            (true, _) => ("inputs", "? its shape"),
            (false, true) => ("outputs", "? its shape"),
            (false, false) => ("outputs", "? its shape; what it begins with: init = 0"),
        };
        let (dtype, doubt) = match it.dtype {
            Some(dtype) => (dtype, doubt.to_owned()),
            None => (
                Dtype::F32,
                format!("? the type `{}` is not known", in_comment(&it.type_name)),
            ),
        };
        let mut line = |name: &str, init: &str, doubt: &str| {
            *text += &format!(
                "{name:<9} = {{ dtype = \"{dtype}\", shape = [\"{size}\"]{init} }}   # {doubt}\n"
            );
        };
        let mut init = String::new();
        if it.is_read && !it.is_const {
            let mut before = format!("{}0", it.name);
            while signature
                .parameters
                .iter()
                .any(|other| other.name == before)
            {
                before.push('0');
            }
            line(
                &format!("inputs.{before}"),
                "",
                &format!("? what `{}` begins with", it.name),
            );
            init = format!(", init = \"{before}\"");
        }
        line(&format!("{kind}.{}", it.name), &init, &doubt);
    }
}

fn entry(signature: &Signature) -> String {
    let name = &signature.name;
    match signature.template.as_slice() {
        [] => format!("entry    = \"{name}\"\n"),
        parameters => {
            let shown = parameters.join(", ");
            let entry = string(&format!("{name}<{shown}>"));
            format!("entry    = {entry}   # ? an instance, such as {name}<float>\n")
        }
    }
}

/// What is not known of arguments, as comments.
fn doubts(signature: &Signature) -> String {
    let mut doubts = String::new();
    for it in scalars(signature).filter(|it| it.dtype.is_none()) {
        doubts += &format!(
            "# ? `{}` is taken for a whole number of 32 bits: its type is {}. Of a structure, pass the numbers\n\
             # to a function of your own that makes it.\n",
            in_comment(&it.name),
            in_comment(&it.type_name)
        );
    }
    doubts
}

fn arguments(signature: &Signature) -> Vec<String> {
    let argument = |it: &Parameter| match (it.is_pointer, it.dtype) {
        (true, _) => format!("\"{}\"", it.name),
        (false, dtype) => {
            let dtype = dtype.unwrap_or(Dtype::I32);
            format!("{{ {dtype} = \"{}\" }}", it.name)
        }
    };
    signature.parameters.iter().map(argument).collect()
}
