//! Inputs and outputs of problems in files, and the digest of outputs.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use safetensors::tensor::SafeTensors;
use sha2::{Digest, Sha256};
use sweeper_program::check::as_f64;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Phase, Problem, Tensor, Tensors};

use crate::device::outputs::Outputs;
use sweeper_model::files;
use sweeper_model::tensor_file::{bytes, data_of, dtype_of_file, to_file};

use super::protocol::InputFile;

/// Tensors are hashed in pieces of this many bytes, in parallel.
const PIECE_BYTES: usize = 1 << 20;

/// SHA-256 over name, type, shape and the SHA-256 of each MiB of the bytes (little endian) of all
/// tensors, by name, in full.
pub fn digest(tensors: &Tensors) -> String {
    let mut hasher = Sha256::new();
    for (name, tensor) in tensors {
        for text in [name, tensor.dtype().name()] {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update((tensor.shape().len() as u64).to_le_bytes());
        for &extent in tensor.shape() {
            hasher.update((extent as u64).to_le_bytes());
        }
        let pieces = bytes(tensor.data()).par_chunks(PIECE_BYTES);
        let digests: Vec<_> = pieces.map(Sha256::digest).collect();
        for digest in digests {
            hasher.update(digest);
        }
    }
    hex::encode(hasher.finalize())
}

/// The digest of outputs: of their elements, or of sums over all of their bits where they stay on a
/// GPU.
pub fn digest_of_outputs(outputs: &Outputs) -> String {
    match outputs {
        Outputs::Host(tensors) => digest(tensors),
        Outputs::Gpu(tensors) => {
            let mut hasher = Sha256::new();
            for (name, held) in tensors {
                hasher.update(format!(
                    "{name} {} {:?} {:?};",
                    held.dtype, held.shape, held.sums
                ));
            }
            hex::encode(hasher.finalize())
        }
    }
}

/// Why tensors can't be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file can't be read, or is not the one that the manifest was read with.
    #[error("{what} {path}: {reason}", path = path.display())]
    Unreadable {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file does not hold the problem's tensors.
    #[error("{0}")]
    Unfit(String),
}

/// Reads a problem's inputs and checks their names, types and shapes. Gradients by results may be
/// missing where only a forward pass is measured, which reads none.
///
/// # Errors
/// An [`InputError`].
pub fn read_inputs(
    file: &InputFile,
    problem: &dyn Problem,
    only_forward: bool,
) -> Result<Tensors, InputError> {
    let bytes = unchanged("inputs", &file.path, &file.digest)?;
    inputs_of(&file.path, &bytes, problem, only_forward).map_err(InputError::Unfit)
}

/// Reads a problem's right outputs, in f64. Names, types and shapes were checked with the manifest.
///
/// # Errors
/// An [`InputError`].
pub fn read_expected(
    path: &str,
    sha256: &str,
    problem: &dyn Problem,
) -> Result<Tensors, InputError> {
    let what = "`check.reference`:";
    let unfit = |reason: String| InputError::Unfit(format!("{what} {path}: {reason}"));
    let digest = hex::decode(sha256).map_err(|error| unfit(error.to_string()))?;
    let bytes = unchanged(what, Path::new(path), &digest)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| unfit(error.to_string()))?;
    let outputs = problem.outputs(Phase::Forward).into_iter().map(|spec| {
        let view = file.tensor(&spec.name).ok();
        let held = view.and_then(|view| data_of(&view, dtype_of_file(view.dtype())?));
        let held = held.ok_or_else(|| unfit(format!("it has no tensor `{}`", spec.name)))?;
        let held = Tensor::new(spec.shape.clone(), held);
        Ok((
            spec.name,
            Tensor::f64(spec.shape, as_f64(&held).into_owned()),
        ))
    });
    outputs.collect()
}

/// The bytes of a file that is what it was when the manifest was read.
fn unchanged(what: &'static str, path: &Path, digest: &[u8]) -> Result<Vec<u8>, InputError> {
    let unreadable = |reason: String| InputError::Unreadable {
        what,
        path: path.to_owned(),
        reason,
    };
    let bytes = files::read(path).map_err(|error| unreadable(error.to_string()))?;
    if Sha256::digest(&bytes)[..] != *digest {
        let reason = "the file has changed since the manifest was read; run again";
        return Err(unreadable(reason.to_owned()));
    }
    Ok(bytes)
}

/// A problem's inputs in the bytes of a file.
fn inputs_of(
    path: &Path,
    bytes: &[u8],
    problem: &dyn Problem,
    only_forward: bool,
) -> Result<Tensors, String> {
    let is_unread = |spec: &TensorSpec| only_forward && spec.name.starts_with("grad_");
    let zeros =
        |spec: &TensorSpec| Tensor::f32(spec.shape.clone(), vec![0.0; spec.shape.iter().product()]);
    let at = |reason: String| format!("inputs {}: {reason}", path.display());
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| at(format!("not a safetensors file: {error}")))?;
    let mut inputs = Tensors::new();
    let mut missing = Vec::new();
    for spec in problem.inputs() {
        let Ok(view) = file.tensor(&spec.name) else {
            let unread = is_unread(&spec).then(|| zeros(&spec));
            match problem.absent_input(&spec).or(unread) {
                Some(tensor) => _ = inputs.insert(spec.name, tensor),
                None => missing.push(spec.name),
            }
            continue;
        };
        if view.shape() != spec.shape {
            return Err(at(format!(
                "`{}` has shape {:?}, the problem needs {:?}",
                spec.name,
                view.shape(),
                spec.shape
            )));
        }
        let data = data_of(&view, spec.dtype).ok_or_else(|| {
            at(format!(
                "`{}` is {:?}, the problem needs {}",
                spec.name,
                view.dtype(),
                spec.dtype
            ))
        })?;
        inputs.insert(spec.name, Tensor::new(spec.shape, data));
    }
    if !missing.is_empty() {
        let mut held = file.names();
        held.sort_unstable();
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let (missing, held) = (listed(&missing), listed(&held));
        return Err(at(format!("there is no tensor {missing}, only {held}")));
    }
    problem.validate(&inputs).map_err(at)?;
    Ok(inputs)
}

/// Some names for a message: a model has hundreds of tensors.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() {
        0 => "nothing".to_owned(),
        len if len > SHOWN => format!("{} and {} more", shown.join(", "), len - SHOWN),
        _ => shown.join(", "),
    }
}

/// Writes the inputs of a problem as `<folder>/<problem>/inputs.safetensors`, once.
///
/// # Errors
/// Those of the file system, with the path.
pub fn write_inputs(folder: &Path, problem: &[u8; 32], inputs: &Tensors) -> Result<(), String> {
    let path = folder
        .join(&hex::encode(problem)[..12])
        .join("inputs.safetensors");
    if path.exists() {
        Ok(())
    } else {
        write(&path, inputs)
    }
}

/// Writes the outputs of a point as `<folder>/<point>/outputs.safetensors`.
///
/// # Errors
/// Those of the file system, with the path.
pub fn write_outputs(folder: &Path, point: &str, outputs: &Tensors) -> Result<(), String> {
    write(&folder.join(point).join("outputs.safetensors"), outputs)
}

fn write(path: &Path, tensors: &Tensors) -> Result<(), String> {
    let at = |reason: String| format!("{}: {reason}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| at(error.to_string()))?;
    }
    let file = to_file(tensors).map_err(|error| at(error.to_string()))?;
    fs::write(path, file).map_err(|error| at(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use sweeper_program::inputs::InputKey;
    use sweeper_program::{Data, Dtype, Parameters};
    use sweeper_workloads::registry;

    #[test]
    fn a_file_that_has_changed_is_refused() {
        let parameters: Parameters = [("elements", 5)].into_iter().collect();
        let workload = registry::workload("copy").unwrap();
        let problem = workload.problem(&parameters, Dtype::F32).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inputs.safetensors");
        let [first, second] = [1, 2].map(|byte| problem.generate(&InputKey([byte; 32])));
        write(&path, &first).unwrap();
        let digest = Sha256::digest(fs::read(&path).unwrap()).into();
        let file = InputFile { path, digest };
        assert_eq!(read_inputs(&file, problem.as_ref(), false).unwrap(), first);
        write(&file.path, &second).unwrap();
        let error = read_inputs(&file, problem.as_ref(), false).unwrap_err();
        assert!(matches!(error, InputError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains("has changed"), "{error}");
    }

    #[test]
    fn a_forward_pass_needs_no_gradients() {
        let sizes = ["batch", "sequence", "dimension"].map(|name| (name, 3));
        let workload = registry::workload("softmax").unwrap();
        let problem = workload.problem(&sizes.into_iter().collect(), Dtype::F32);
        let problem = problem.unwrap();
        let mut inputs = problem.generate(&InputKey([1; 32]));
        inputs.remove("grad_out").unwrap();
        let bytes = to_file(&inputs).unwrap();
        let read = |only_forward| inputs_of(Path::new("x"), &bytes, problem.as_ref(), only_forward);
        assert_eq!(read(true).unwrap()["x"], inputs["x"]);
        assert!(read(false).unwrap_err().contains("`grad_out`"));
    }

    const MODEL: &str = "inputs weights.safetensors: ";

    fn model() -> Box<dyn Problem> {
        let sizes = [
            "batch",
            "context",
            "vocabulary",
            "d_model",
            "d_ff",
            "layers",
            "heads",
        ];
        let mut parameters: Parameters = sizes.map(|name| (name, 2)).into_iter().collect();
        parameters.set("heads", 1);
        let workload = registry::workload("transformer").unwrap();
        workload.problem(&parameters, Dtype::F32).unwrap()
    }

    /// The inputs of the model in a file of `tensors`.
    fn read_model(tensors: &Tensors) -> Result<Tensors, String> {
        let bytes = to_file(tensors).unwrap();
        inputs_of(
            Path::new("weights.safetensors"),
            &bytes,
            model().as_ref(),
            false,
        )
    }

    /// Weights and tokens without the optimizer's state, as other programs save them.
    fn weights() -> Tensors {
        let mut tensors = model().generate(&InputKey([1; 32]));
        tensors.retain(|name, _| !name.starts_with("moment"));
        tensors
    }

    #[test]
    fn weights_come_by_name_and_moments_begin_at_zero() {
        let mut given = weights();
        let head = given["lm_head.weight"].clone();
        let rounded = head.as_f32().unwrap().iter().map(|&x| bf16::from_f32(x));
        let rounded = Tensor::new(head.shape().to_vec(), Data::Bf16(rounded.collect()));
        given.insert("lm_head.weight".to_owned(), rounded.clone());
        given.insert("rotary.cache".to_owned(), head);
        let found = read_model(&given).unwrap();
        assert_eq!(found["lm_head.weight"].dtype(), Dtype::F32);
        let ffn = "layers.1.ffn.w2.weight";
        assert_eq!(found[ffn], given[ffn]);
        let moments = found.iter().filter(|(name, _)| name.starts_with("moment"));
        let moments: Vec<&Tensor> = moments.map(|(_, tensor)| tensor).collect();
        assert_eq!(moments.len(), 2 * (3 + 2 * 9));
        let is_zero = |tensor: &&Tensor| tensor.as_f32().unwrap().iter().all(|&x| x == 0.0);
        assert!(moments.iter().all(is_zero));
    }

    #[test]
    fn weights_that_do_not_fit_are_said() {
        let with = |name: &str, tensor: Option<Tensor>| {
            let mut tensors = weights();
            tensors.remove(name).unwrap();
            tensors.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
            read_model(&tensors).unwrap_err()
        };
        let name = "layers.1.attn.q_proj.weight";
        let missing = with(name, None);
        let start = format!("{MODEL}there is no tensor `{name}`, only `input_ids`, `layers.0.");
        assert!(missing.starts_with(&start), "{missing}");
        assert!(missing.ends_with("and 15 more"), "{missing}");
        let shape = with(name, Some(Tensor::f32([2, 3], vec![0.0; 6])));
        assert_eq!(
            shape,
            format!("{MODEL}`{name}` has shape [2, 3], the problem needs [2, 2]")
        );
        let dtype = with(name, Some(Tensor::f64([2, 2], vec![0.0; 4])));
        assert_eq!(
            dtype,
            format!("{MODEL}`{name}` is F64, the problem needs f32")
        );
        let token = with("input_ids", Some(Tensor::i64([2, 2], vec![0, 1, 2, 1])));
        assert_eq!(
            token,
            format!("{MODEL}element 2 of `input_ids` is 2, but there are 2 classes, from 0 on")
        );
        let number = with(
            "ln_final.weight",
            Some(Tensor::f32([2], vec![1.0, f32::NAN])),
        );
        assert_eq!(
            number,
            format!("{MODEL}element 1 of `ln_final.weight` is NaN, not a finite number")
        );
    }
}
