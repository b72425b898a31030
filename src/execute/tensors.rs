//! Tensors in and out: safetensors files, and the digest of outputs.

use std::fs;
use std::path::Path;

use rayon::prelude::*;
use safetensors::tensor::{Dtype as FileDtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};
use sweeper_kernels::{Data, Dtype, Problem, Tensor, Tensors};

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

/// Reads a problem's inputs and checks them against what it needs.
///
/// # Errors
/// What is missing, superfluous, of another shape or type, or not allowed.
pub fn read_inputs(path: &Path, problem: &dyn Problem) -> Result<Tensors, String> {
    let at = |reason: String| format!("inputs {}: {reason}", path.display());
    let bytes = fs::read(path).map_err(|error| at(error.to_string()))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| at(format!("not a safetensors file: {error}")))?;
    let mut inputs = Tensors::new();
    for spec in problem.inputs() {
        let view = file.tensor(&spec.name).map_err(|_| {
            let mut names = file.names();
            names.sort_unstable();
            at(format!(
                "there is no tensor `{}`, only {}",
                spec.name,
                names.join(", ")
            ))
        })?;
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
    problem.validate(&inputs).map_err(at)?;
    Ok(inputs)
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
    let views = tensors
        .iter()
        .map(|(name, tensor)| {
            let (dtype, shape) = (file_dtype(tensor.dtype()), tensor.shape().to_vec());
            Ok((name, TensorView::new(dtype, shape, bytes(tensor.data()))?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|error| at(error.to_string()))?;
    let file = safetensors::serialize(views, None).map_err(|error| at(error.to_string()))?;
    fs::write(path, file).map_err(|error| at(error.to_string()))
}

fn file_dtype(dtype: Dtype) -> FileDtype {
    match dtype {
        Dtype::F32 => FileDtype::F32,
        Dtype::F64 => FileDtype::F64,
        Dtype::I32 => FileDtype::I32,
        Dtype::I64 => FileDtype::I64,
    }
}

/// The elements of a tensor in a file; `i32` is accepted where `i64` is needed.
fn data_of(view: &TensorView<'_>, dtype: Dtype) -> Option<Data> {
    let bytes = view.data();
    match (dtype, view.dtype()) {
        (Dtype::F32, FileDtype::F32) => Some(Data::F32(numbers(bytes, f32::from_le_bytes))),
        (Dtype::F64, FileDtype::F64) => Some(Data::F64(numbers(bytes, f64::from_le_bytes))),
        (Dtype::I32, FileDtype::I32) => Some(Data::I32(numbers(bytes, i32::from_le_bytes))),
        (Dtype::I64, FileDtype::I64) => Some(Data::I64(numbers(bytes, i64::from_le_bytes))),
        (Dtype::I64, FileDtype::I32) => Some(Data::I64(numbers(bytes, |bytes| {
            i64::from(i32::from_le_bytes(bytes))
        }))),
        _ => None,
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|&chunk| number(chunk))
        .collect()
}

/// The bytes of a tensor's elements, as files and digests have them.
fn bytes(data: &Data) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "files are little endian") };
    match data {
        Data::F32(values) => bytemuck::cast_slice(values),
        Data::F64(values) => bytemuck::cast_slice(values),
        Data::I32(values) => bytemuck::cast_slice(values),
        Data::I64(values) => bytemuck::cast_slice(values),
    }
}
