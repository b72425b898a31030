//! The format of files of tensors: safetensors.

use std::cmp::Reverse;

use half::{bf16, f16};
use safetensors::tensor::{
    Dtype as FileDtype, Metadata, SafeTensorError, SafeTensors, TensorInfo, TensorView,
};
use sweeper_program::{Data, Dtype, Tensor, Tensors};

/// Tensors as the bytes of a file.
///
/// # Errors
/// Errors of the format.
pub fn to_file(tensors: &Tensors) -> Result<Vec<u8>, SafeTensorError> {
    let (mut file, ordered) = layout(tensors)?;
    ordered.into_iter().for_each(|held| file.extend(held));
    Ok(file)
}

/// The bytes of a file up to its elements, and the elements of all tensors in their order: greater
/// ones first, so that all are aligned.
///
/// # Errors
/// Errors of the format.
pub fn layout(tensors: &Tensors) -> Result<(Vec<u8>, Vec<&[u8]>), SafeTensorError> {
    let typed = |(name, tensor)| (file_dtype(Tensor::dtype(tensor)), name, tensor);
    let mut ordered: Vec<(FileDtype, &String, &Tensor)> = tensors.iter().map(typed).collect();
    ordered.sort_by_key(|(dtype, name, _)| (Reverse(*dtype), *name));
    let mut end = 0;
    let described = ordered.iter().map(|(dtype, name, tensor)| {
        let begin = end;
        end += bytes(tensor.data()).len();
        let info = TensorInfo {
            dtype: *dtype,
            shape: tensor.shape().to_vec(),
            data_offsets: (begin, end),
        };
        ((*name).clone(), info)
    });
    let mut text = serde_json::to_vec(&Metadata::new(None, described.collect())?)?;
    text.resize(text.len().next_multiple_of(HEAD_LENGTH_BYTES), b' ');
    let length = (text.len() as u64).to_le_bytes();
    let elements = ordered.iter().map(|(_, _, tensor)| bytes(tensor.data()));
    Ok(([&length, &*text].concat(), elements.collect()))
}

/// A tensor of a file without its elements: name, type and shape.
pub type Head = (String, Dtype, Vec<usize>);

/// The tensors that a file of so many bytes announces in its head, by name; those of types that
/// have no place here are left out. `head` has the first bytes of the file, up to the elements.
///
/// # Errors
/// No such file, or one that was cut off.
pub fn heads(head: &[u8], file_bytes: u64) -> Result<Vec<Head>, String> {
    let text = head
        .get(HEAD_LENGTH_BYTES..)
        .filter(|text| !text.is_empty());
    let text = text.ok_or("it begins with no head")?;
    let metadata: Metadata = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let held = metadata.tensors();
    let end = held.values().map(|info| info.data_offsets.1).max();
    let announced = head.len() as u64 + end.unwrap_or(0) as u64;
    if announced != file_bytes {
        return Err(format!(
            "it has {file_bytes} bytes, and its head announces {announced}"
        ));
    }
    let mut heads: Vec<Head> = held
        .into_iter()
        .filter_map(|(name, info)| Some((name, dtype_of_file(info.dtype)?, info.shape.clone())))
        .collect();
    heads.sort();
    Ok(heads)
}

/// The bytes at the beginning of a file that hold the length of its head.
pub const HEAD_LENGTH_BYTES: usize = 8;

/// All tensors of a file; none if one is of a type that has no place here.
pub fn all_of(file: &SafeTensors<'_>) -> Option<Tensors> {
    let tensor = |(name, view): (String, TensorView<'_>)| {
        let dtype = dtype_of_file(view.dtype())?;
        let data = data_of(&view, dtype)?;
        Some((name, Tensor::new(view.shape().to_vec(), data)))
    };
    file.tensors().into_iter().map(tensor).collect()
}

/// Types of elements and their names in files, each once.
const FILE_DTYPES: &[(Dtype, FileDtype)] = &[
    (Dtype::Bf16, FileDtype::BF16),
    (Dtype::F32, FileDtype::F32),
    (Dtype::F64, FileDtype::F64),
    (Dtype::I32, FileDtype::I32),
    (Dtype::I64, FileDtype::I64),
    (Dtype::F16, FileDtype::F16),
    (Dtype::I8, FileDtype::I8),
    (Dtype::I16, FileDtype::I16),
    (Dtype::U8, FileDtype::U8),
    (Dtype::U16, FileDtype::U16),
    (Dtype::U32, FileDtype::U32),
    (Dtype::U64, FileDtype::U64),
    (Dtype::Bool, FileDtype::BOOL),
];

fn file_dtype(dtype: Dtype) -> FileDtype {
    let named = FILE_DTYPES.iter().find(|(own, _)| *own == dtype);
    named.map_or(FileDtype::U8, |(_, file)| *file)
}

/// The type of elements of a file; none where it has no place here.
pub fn dtype_of_file(dtype: FileDtype) -> Option<Dtype> {
    let named = FILE_DTYPES.iter().find(|(_, file)| *file == dtype);
    named.map(|(own, _)| *own)
}

/// The elements of a tensor in a file; types are accepted whose every value the needed type has.
pub fn data_of(view: &TensorView<'_>, dtype: Dtype) -> Option<Data> {
    let bytes = view.data();
    if dtype_of_file(view.dtype()) == Some(dtype) {
        return Some(Data::from_bytes(dtype, bytes));
    }
    match (dtype, view.dtype()) {
        (Dtype::F32, FileDtype::BF16) => Some(Data::F32(numbers(bytes, |bytes| {
            bf16::from_le_bytes(bytes).to_f32()
        }))),
        (Dtype::F32, FileDtype::F16) => Some(Data::F32(numbers(bytes, |bytes| {
            f16::from_le_bytes(bytes).to_f32()
        }))),
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
pub fn bytes(data: &Data) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "files are little endian") };
    data.bytes()
}
