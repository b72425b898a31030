//! Graphs of operations that cuDNN computes in one kernel, by its backend interface: what is in a
//! graph, and the plan by which it is run.
//!
//! Everything is a descriptor: made, given attributes, finished. A graph is matched by its
//! structure, so that operations, their order and the types of values between them are as
//! [`super::attention`] needs them.

use std::ffi::{CStr, c_char, c_void};
use std::rc::Rc;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as Number,
    cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};

use super::dnn::Dnn;
use super::driver::Fault;

/// Engines that are tried, at most.
const MOST_ENGINES: usize = 16;

/// Notes of an engine, at most: there are fewer kinds of them.
const MOST_NOTES: usize = 32;

const FLOAT: Number = Number::CUDNN_DATA_FLOAT;

/// A fault with the library's own words for it.
fn check(status: sys::cudnnStatus_t, doing: impl FnOnce() -> String) -> Result<(), Fault> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    Err(Fault::refused(format!(
        "{}: {status:?}: {}",
        doing(),
        last_error()
    )))
}

#[expect(unsafe_code, reason = "a call of the library")]
fn last_error() -> String {
    let mut text = [0u8; 1024];
    // SAFETY: the library writes a string of at most as many bytes as it is told.
    unsafe { sys::cudnnGetLastErrorString(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

/// A descriptor of the library.
struct Descriptor {
    raw: sys::cudnnBackendDescriptor_t,
    kind: Kind,
}

impl Drop for Descriptor {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once; those that refer to it hold it in the library.
        unsafe { sys::cudnnBackendDestroyDescriptor(self.raw) };
    }
}

impl Descriptor {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn new(kind: Kind) -> Result<Self, Fault> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library stores a pointer.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut raw) };
        check(status, || format!("making {kind:?}"))?;
        Ok(Descriptor { raw, kind })
    }

    /// Sets an attribute to values of the type that `of` names.
    #[expect(unsafe_code, reason = "a call of the library")]
    fn with<V: Copy>(self, name: Name, of: Type, values: &[V]) -> Result<Self, Fault> {
        let from = values.as_ptr().cast::<c_void>();
        // SAFETY: as many values as are told are read before the call returns; their type is the
        // one that the library expects under `of`.
        let status =
            unsafe { sys::cudnnBackendSetAttribute(self.raw, name, of, values.len() as i64, from) };
        check(status, || format!("setting {name:?}"))?;
        Ok(self)
    }

    fn with_number(self, name: Name, number: Number) -> Result<Self, Fault> {
        self.with(name, Type::CUDNN_TYPE_DATA_TYPE, &[number])
    }

    fn with_ints(self, name: Name, ints: &[i64]) -> Result<Self, Fault> {
        self.with(name, Type::CUDNN_TYPE_INT64, ints)
    }

    fn with_flag(self, name: Name, is_set: bool) -> Result<Self, Fault> {
        self.with(name, Type::CUDNN_TYPE_BOOLEAN, &[is_set])
    }

    fn with_handle(self, name: Name, dnn: &Dnn) -> Result<Self, Fault> {
        self.with(name, Type::CUDNN_TYPE_HANDLE, &[dnn.handle()])
    }

    fn with_parts(self, name: Name, parts: &[&Descriptor]) -> Result<Self, Fault> {
        let raw: Vec<_> = parts.iter().map(|part| part.raw).collect();
        self.with(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    #[expect(unsafe_code, reason = "a call of the library")]
    fn finished(self) -> Result<Self, Fault> {
        // SAFETY: it was made, and is used by this thread alone.
        let status = unsafe { sys::cudnnBackendFinalize(self.raw) };
        check(status, || format!("finishing {:?}", self.kind))?;
        Ok(self)
    }

    /// The values of an attribute, at most as many as are given to be overwritten.
    #[expect(unsafe_code, reason = "a call of the library")]
    fn get<V: Copy>(&self, name: Name, of: Type, mut values: Vec<V>) -> Result<Vec<V>, Fault> {
        let mut count = 0;
        let (most, to) = (values.len() as i64, values.as_mut_ptr().cast::<c_void>());
        // SAFETY: there is room for as many values as are told, of the type that the library
        // stores under `of`.
        let status =
            unsafe { sys::cudnnBackendGetAttribute(self.raw, name, of, most, &raw mut count, to) };
        check(status, || format!("getting {name:?}"))?;
        values.truncate(count.max(0) as usize);
        Ok(values)
    }

    /// Descriptors of a kind that the library fills in, at most `most`.
    fn parts(&self, name: Name, kind: Kind, most: usize) -> Result<Vec<Descriptor>, Fault> {
        let made = (0..most).map(|_| Descriptor::new(kind));
        let mut made = made.collect::<Result<Vec<_>, _>>()?;
        let raw = made.iter().map(|part| part.raw).collect();
        let filled = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, raw)?;
        made.truncate(filled.len());
        Ok(made)
    }
}

/// A tensor of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor(usize);

impl Tensor {
    /// The number by which the library knows it.
    fn number(self) -> i64 {
        self.0 as i64 + 1
    }
}

/// Extents and steps of four dimensions.
pub type Shape = ([i64; 4], [i64; 4]);

/// The shape of dense elements.
pub fn dense(extents: [i64; 4]) -> Shape {
    let [_, b, c, d] = extents;
    (extents, [b * c * d, c * d, d, 1])
}

/// The shape with matrices turned.
pub fn turned(([a, b, c, d], [step_a, step_b, step_c, step_d]): Shape) -> Shape {
    ([a, b, d, c], [step_a, step_b, step_d, step_c])
}

/// Where the elements of a tensor are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// In memory, which each run names.
    Memory,
    /// A number, which each run names.
    Number,
    /// Nowhere: between operations.
    Between,
}

/// A graph of operations.
#[derive(Default)]
pub struct Graph {
    tensors: Vec<Descriptor>,
    shapes: Vec<Shape>,
    operations: Vec<Descriptor>,
}

impl Graph {
    fn tensor(&mut self, number: Number, shape: Shape, held: Held) -> Result<Tensor, Fault> {
        let tensor = Tensor(self.tensors.len());
        let (extents, steps) = shape;
        let made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .with_ints(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[tensor.number()])?
            .with_number(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, number)?
            .with_ints(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &extents)?
            .with_ints(Name::CUDNN_ATTR_TENSOR_STRIDES, &steps)?
            .with_ints(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?
            .with_flag(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, held == Held::Between)?
            .with_flag(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, held == Held::Number)?
            .finished()?;
        self.tensors.push(made);
        self.shapes.push(shape);
        Ok(tensor)
    }

    /// A tensor in memory.
    ///
    /// # Errors
    /// The library's, here and below.
    pub fn memory(&mut self, number: Number, shape: Shape) -> Result<Tensor, Fault> {
        self.tensor(number, shape, Held::Memory)
    }

    /// One number in f32.
    pub fn number(&mut self) -> Result<Tensor, Fault> {
        self.tensor(FLOAT, dense([1; 4]), Held::Number)
    }

    /// A value between operations.
    pub fn between(&mut self, number: Number, extents: [i64; 4]) -> Result<Tensor, Fault> {
        self.tensor(number, dense(extents), Held::Between)
    }

    fn extents(&self, tensor: Tensor) -> [i64; 4] {
        self.shapes[tensor.0].0
    }

    /// Adds an operation that has these tensors.
    fn add(
        &mut self,
        kind: Kind,
        how: Option<(Name, Descriptor)>,
        tensors: &[(Name, Tensor)],
    ) -> Result<(), Fault> {
        let mut made = Descriptor::new(kind)?;
        if let Some((name, how)) = &how {
            made = made.with_parts(*name, &[how])?;
        }
        for &(name, tensor) in tensors {
            made = made.with_parts(name, &[&self.tensors[tensor.0]])?;
        }
        self.operations.push(made.finished()?);
        Ok(())
    }

    /// Products of matrices, with sums in f32.
    pub fn matmul_to(&mut self, a: Tensor, b: Tensor, to: Tensor) -> Result<(), Fault> {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?
            .with_number(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, FLOAT)?
            .finished()?;
        self.add(
            Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
            Some((Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, how)),
            &[
                (Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to),
            ],
        )
    }

    /// As [`Graph::matmul_to`], to a value in f32.
    pub fn matmul(&mut self, a: Tensor, b: Tensor) -> Result<Tensor, Fault> {
        let ([batch, heads, rows, _], [.., columns]) = (self.extents(a), self.extents(b));
        let to = self.between(FLOAT, [batch, heads, rows, columns])?;
        self.matmul_to(a, b, to)?;
        Ok(to)
    }

    /// An operation on each element: of `x`, and of `others` where it has more operands, computed
    /// in `number`.
    pub fn pointwise_to(
        &mut self,
        (mode, number): (Pointwise, Number),
        x: Tensor,
        others: &[Tensor],
        to: Tensor,
    ) -> Result<(), Fault> {
        let how = pointwise(mode, number)?.finished()?;
        self.add_pointwise(how, x, others, to)
    }

    fn add_pointwise(
        &mut self,
        how: Descriptor,
        x: Tensor,
        others: &[Tensor],
        to: Tensor,
    ) -> Result<(), Fault> {
        let names = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let others = names.into_iter().zip(others.iter().copied());
        let tensors: Vec<_> = [
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x),
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to),
        ]
        .into_iter()
        .chain(others)
        .collect();
        let name = Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR;
        self.add(
            Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
            Some((name, how)),
            &tensors,
        )
    }

    /// As [`Graph::pointwise_to`], in f32 and to a value in f32.
    pub fn pointwise(
        &mut self,
        mode: Pointwise,
        x: Tensor,
        others: &[Tensor],
    ) -> Result<Tensor, Fault> {
        let to = self.between(FLOAT, self.extents(x))?;
        self.pointwise_to((mode, FLOAT), x, others, to)?;
        Ok(to)
    }

    /// Each element's index along a dimension, in i32.
    pub fn index(&mut self, like: Tensor, dimension: i64) -> Result<Tensor, Fault> {
        let to = self.between(Number::CUDNN_DATA_INT32, self.extents(like))?;
        let how = pointwise(Pointwise::CUDNN_POINTWISE_GEN_INDEX, FLOAT)?
            .with_ints(Name::CUDNN_ATTR_POINTWISE_AXIS, &[dimension])?
            .finished()?;
        self.add_pointwise(how, like, &[], to)?;
        Ok(to)
    }

    /// A reduction of each row, in f32.
    pub fn reduce(&mut self, mode: Reduction, x: Tensor) -> Result<Tensor, Fault> {
        let [batch, heads, rows, _] = self.extents(x);
        let to = self.between(FLOAT, [batch, heads, rows, 1])?;
        let how = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?
            .with(
                Name::CUDNN_ATTR_REDUCTION_OPERATOR,
                Type::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                &[mode],
            )?
            .with_number(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, FLOAT)?
            .finished()?;
        self.add(
            Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
            Some((Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)),
            &[
                (Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x),
                (Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to),
            ],
        )?;
        Ok(to)
    }

    /// The matrices of a value, turned, as factors in bf16.
    pub fn turned(&mut self, x: Tensor) -> Result<Tensor, Fault> {
        let shape = turned(self.shapes[x.0]);
        let to = self.tensor(Number::CUDNN_DATA_BFLOAT16, shape, Held::Between)?;
        self.add(
            Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
            None,
            &[
                (Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x),
                (Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to),
            ],
        )?;
        Ok(to)
    }

    /// The first plan of the library's heuristics that can be made, needs at most `scratch_bytes`
    /// of scratch memory and yields equal bits every time.
    ///
    /// # Errors
    /// The library's reason where there is no such plan.
    pub fn plan(self, dnn: &Rc<Dnn>, scratch_bytes: usize) -> Result<Plan, Fault> {
        let operations: Vec<&Descriptor> = self.operations.iter().collect();
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .with_parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
            .with_handle(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, dnn)?
            .finished()?;
        let found = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .with_parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph])?
            .with(
                Name::CUDNN_ATTR_ENGINEHEUR_MODE,
                Type::CUDNN_TYPE_HEUR_MODE,
                &[sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A],
            )?
            .finished()?;
        let engines = found.parts(
            Name::CUDNN_ATTR_ENGINEHEUR_RESULTS,
            Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
            MOST_ENGINES,
        )?;
        let mut reason = Fault::refused("cuDNN has no engine for this graph of operations");
        for engine in &engines {
            match Plan::of(dnn, engine, scratch_bytes) {
                Ok(plan) => return Ok(plan),
                Err(own) => reason = own,
            }
        }
        Err(reason)
    }
}

fn pointwise(mode: Pointwise, number: Number) -> Result<Descriptor, Fault> {
    Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .with(
            Name::CUDNN_ATTR_POINTWISE_MODE,
            Type::CUDNN_TYPE_POINTWISE_MODE,
            &[mode],
        )?
        .with_number(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, number)
}

/// Whether an engine says that its results may differ from run to run.
fn is_unsteady(engine: &Descriptor) -> Result<bool, Fault> {
    let engine = engine.parts(
        Name::CUDNN_ATTR_ENGINECFG_ENGINE,
        Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        1,
    )?;
    let Some(engine) = engine.first() else {
        return Ok(false);
    };
    let unsteady = sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC as u32;
    let notes = engine.get(
        Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        Type::CUDNN_TYPE_NUMERICAL_NOTE,
        vec![0u32; MOST_NOTES],
    )?;
    Ok(notes.contains(&unsteady))
}

/// A graph that is ready to be run.
pub struct Plan {
    dnn: Rc<Dnn>,
    plan: Descriptor,
}

impl Plan {
    fn of(dnn: &Rc<Dnn>, engine: &Descriptor, scratch_bytes: usize) -> Result<Self, Fault> {
        if is_unsteady(engine)? {
            return Err(Fault::refused(
                "cuDNN has no engine for this that gives the same bits every time",
            ));
        }
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .with_handle(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, dnn)?
            .with_parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[engine])?
            .finished()?;
        let needed = plan.get(
            Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
            Type::CUDNN_TYPE_INT64,
            vec![0i64],
        )?;
        let needed = needed.first().map_or(0, |&bytes| bytes.max(0) as usize);
        if needed > scratch_bytes {
            return Err(Fault::refused(format!(
                "cuDNN needs {needed} bytes of scratch memory, and has {scratch_bytes}"
            )));
        }
        Ok(Plan {
            dnn: Rc::clone(dnn),
            plan,
        })
    }

    /// Queues a run: memory and numbers of all tensors that are not between operations, and scratch
    /// memory.
    ///
    /// # Errors
    /// The library's.
    #[expect(unsafe_code, reason = "a call of the library")]
    pub fn launch(
        &self,
        memory: &[(Tensor, u64)],
        numbers: &[(Tensor, f32)],
        scratch: u64,
    ) -> Result<(), Fault> {
        let of_memory = memory.iter().map(|&(_, address)| address as *const c_void);
        let of_numbers = numbers
            .iter()
            .map(|(_, number)| (&raw const *number).cast());
        let tensors = memory.iter().map(|(tensor, _)| tensor.number());
        let tensors = tensors.chain(numbers.iter().map(|(tensor, _)| tensor.number()));
        let tensors: Vec<i64> = tensors.collect();
        let pointers: Vec<*const c_void> = of_memory.chain(of_numbers).collect();
        let pointer = Type::CUDNN_TYPE_VOID_PTR;
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with_ints(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &tensors)?
            .with(
                Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                pointer,
                &pointers,
            )?
            .with(
                Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                pointer,
                &[scratch as *const c_void],
            )?
            .finished()?;
        // SAFETY: plan and handle live as long as `self`; the operands' views span the tensors
        // (`check_library_launch`), scratch memory is as long as the plan needs, and numbers are
        // read before the call returns.
        let status =
            unsafe { sys::cudnnBackendExecute(self.dnn.handle(), self.plan.raw, pack.raw) };
        check(status, || "launching attention".to_owned())
    }
}
