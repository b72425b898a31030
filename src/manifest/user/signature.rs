//! Signatures of functions in C and CUDA sources, as far as a starter manifest needs them.
//!
//! This is not a parser of C++: it finds functions by their form, and says which types it does not
//! know.

use sweeper_program::Dtype;

use super::declaration::DeclaredLanguage;

/// A function that can be called from outside its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name.
    pub name: String,
    /// The names of its template's parameters; empty for a plain function.
    pub template: Vec<String>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
}

impl Signature {
    /// Whether it takes the arguments of another function, in its order.
    pub fn takes_what(&self, other: &Signature) -> bool {
        let types = |it: &Signature| -> Vec<(String, bool)> {
            let parameters = it.parameters.iter();
            parameters
                .map(|it| (it.type_name.clone(), it.is_pointer))
                .collect()
        };
        self.template == other.template && types(self) == types(other)
    }
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; `argN` where it has none.
    pub name: String,
    /// Its type without qualifiers, as it is written.
    pub type_name: String,
    /// The type of elements, where it is one that tensors have.
    pub dtype: Option<Dtype>,
    /// Whether it is an address.
    pub is_pointer: bool,
    /// Whether what it points to is only read.
    pub is_const: bool,
    /// Whether the function seems to read elements of it before it writes them.
    pub is_read: bool,
}

/// Words that stand before brackets and name no function.
const KEYWORDS: [&str; 8] = [
    "if", "for", "while", "switch", "return", "sizeof", "do", "catch",
];

/// The functions of a source: kernels in CUDA, functions with a body in C, those that can be called
/// from elsewhere if there are any.
pub fn signatures(text: &str, language: DeclaredLanguage) -> Vec<Signature> {
    let text = without_comments(text);
    let (mut found, mut of_file) = (Vec::new(), Vec::new());
    let mut from = 0;
    while let Some(open) = text[from..].find('(').map(|at| from + at) {
        from = open + 1;
        let Some(close) = closing(&text, open) else {
            break;
        };
        let (before, after) = (text[..open].trim_end(), text[close + 1..].trim_start());
        let is_of_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let name_at = before.trim_end_matches(is_of_name).len();
        let name = &before[name_at..];
        // Declarations end with `;`, calls and conditions stand within bodies.
        let head = head(&before[..name_at]);
        let is_name = !name.is_empty() && !KEYWORDS.contains(&name);
        if !after.starts_with('{') || !is_name || head.is_empty() {
            continue;
        }
        let is_callable = match language {
            DeclaredLanguage::Cuda => head.contains("__global__"),
            DeclaredLanguage::C => !head.split_whitespace().any(|word| word == "static"),
        };
        let mut parameters = parameters(&text[open + 1..close]);
        let start = text.len() - after.len();
        from = closing(&text, start).unwrap_or(from);
        for it in parameters.iter_mut().filter(|it| it.is_pointer) {
            it.is_read = is_read_first(text.get(start..from).unwrap_or_default(), &it.name);
        }
        let function = Signature {
            name: name.to_owned(),
            template: template(head),
            parameters,
        };
        match (is_callable, language) {
            (true, _) => found.push(function),
            (false, DeclaredLanguage::C) => of_file.push(function),
            (false, DeclaredLanguage::Cuda) => {}
        }
    }
    match found.as_slice() {
        // A manifest's caller includes the source.
        [] => of_file,
        _ => found,
    }
}

/// What stands before a function's name, back to the end of what is before it.
fn head(before: &str) -> &str {
    let at = before.rfind([';', '}', '{']).map_or(0, |at| at + 1);
    let head = before[at..].trim();
    // Lines of the preprocessor are none of its words.
    let lines = head.rfind('#').map(|hash| {
        let line = head[hash..].find('\n').map_or(head.len(), |end| hash + end);
        head[line..].trim()
    });
    lines.unwrap_or(head)
}

/// Names of the parameters in `template <...>`.
fn template(head: &str) -> Vec<String> {
    let Some((_, rest)) = head.split_once("template") else {
        return Vec::new();
    };
    let Some((list, _)) = rest
        .trim_start()
        .strip_prefix('<')
        .and_then(|rest| rest.split_once('>'))
    else {
        return Vec::new();
    };
    let names = list.split(',').filter_map(|one| {
        let one = one.split('=').next().unwrap_or(one).trim();
        one.rsplit(|c: char| c.is_whitespace()).next()
    });
    names.map(str::to_owned).collect()
}

fn parameters(list: &str) -> Vec<Parameter> {
    let list = list.trim();
    if list.is_empty() || list == "void" {
        return Vec::new();
    }
    let mut depth = 0;
    let parts = list.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    let parameters = parts.enumerate();
    parameters.map(|(at, text)| parameter(at, text)).collect()
}

fn parameter(at: usize, text: &str) -> Parameter {
    const QUALIFIERS: [&str; 7] = [
        "const",
        "volatile",
        "restrict",
        "__restrict__",
        "__restrict",
        "struct",
        "register",
    ];
    // A pointer to a function, `int (*compare)(int, int)`.
    if let Some((_, rest)) = text.split_once("(*") {
        let name = rest.split(')').next().unwrap_or_default();
        return Parameter {
            name: name.trim().to_owned(),
            dtype: None,
            type_name: text.trim().to_owned(),
            is_pointer: true,
            is_const: false,
            is_read: false,
        };
    }
    // Without its value where the caller gives none.
    let text = text.split('=').next().unwrap_or(text);
    let is_array = text.contains('[');
    let is_pointer = text.contains('*') || is_array;
    let text = text.split('[').next().unwrap_or(text);
    let spaced = text.replace('*', " * ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    // What is constant is what stands before the first `*`.
    let pointee = words.split(|word| *word == "*").next().unwrap_or_default();
    let is_const = pointee.contains(&"const");
    let plain: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "*" && !QUALIFIERS.contains(word))
        .collect();
    let (name, type_words) = match plain.as_slice() {
        [] => (format!("arg{at}"), &[][..]),
        [one] => (format!("arg{at}"), std::slice::from_ref(one)),
        [types @ .., name] => ((*name).to_owned(), types),
    };
    let mut type_name = type_words.join(" ");
    let mut dtype = dtype(&type_name);
    // An address of addresses is not a tensor.
    let depth = spaced.matches('*').count() + usize::from(is_array);
    if depth > 1 {
        type_name.push_str(" *");
        dtype = None;
    }
    Parameter {
        name,
        dtype,
        type_name,
        is_pointer,
        is_const,
        is_read: false,
    }
}

/// Whether a body seems to read elements of `name` before it writes them. The first use in the text
/// decides: `y[i] += x` and `y[i] = x + y[i]` do, `y[i] = x` does not. Where the address alone is
/// handed on, nobody knows, and it is taken not to.
fn is_read_first(body: &str, name: &str) -> bool {
    let is_of_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    for (at, _) in body.match_indices(name) {
        let (before, after) = (&body[..at], &body[at + name.len()..]);
        if before.ends_with(is_of_word) || after.starts_with(is_of_word) {
            continue;
        }
        let mut end = at + name.len();
        while let Some(close) = body[end..].starts_with('[').then(|| closing(body, end)) {
            end = close.map_or(body.len(), |close| close + 1);
        }
        let (element, rest) = (&body[at..end], body[end..].trim_start());
        let is_element = element.len() > name.len() || before.ends_with('*');
        let Some(value) = rest.strip_prefix('=').filter(|rest| !rest.starts_with('=')) else {
            match is_element {
                true => return true,
                false => continue,
            }
        };
        if is_element {
            let statement = value.split(';').next().unwrap_or_default();
            return element.len() > name.len() && statement.contains(element);
        }
    }
    false
}

/// The type of elements that a type of C has.
fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "float" | "float32_t" => Dtype::F32,
        "double" => Dtype::F64,
        "half" | "__half" | "_Float16" => Dtype::F16,
        "__nv_bfloat16" | "nv_bfloat16" | "__bf16" => Dtype::Bf16,
        "int" | "signed" | "signed int" | "int32_t" => Dtype::I32,
        "unsigned" | "unsigned int" | "uint32_t" | "uint" => Dtype::U32,
        "long" | "long long" | "long int" | "long long int" | "int64_t" | "ptrdiff_t"
        | "ssize_t" => Dtype::I64,
        "unsigned long" | "unsigned long long" | "uint64_t" | "size_t" => Dtype::U64,
        "short" | "int16_t" => Dtype::I16,
        "unsigned short" | "uint16_t" => Dtype::U16,
        "signed char" | "int8_t" => Dtype::I8,
        "char" | "unsigned char" | "uint8_t" => Dtype::U8,
        "bool" | "_Bool" => Dtype::Bool,
        _ => return None,
    })
}

/// The place of the bracket that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let (mut depth, start) = (0usize, text.get(open..)?);
    for (at, c) in start.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open + at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The text with spaces in place of comments.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        plain.push_str(&rest[..at]);
        let end = match rest[at..].starts_with("//") {
            true => rest[at..].find('\n').map(|end| at + end),
            false => rest[at..].find("*/").map(|end| at + end + 2),
        };
        plain.push(' ');
        rest = end.map_or("", |end| &rest[end..]);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(signature: &Signature) -> String {
        let parameters = signature.parameters.iter().map(|parameter| {
            let dtype = parameter.dtype.map_or("?", Dtype::name);
            let constant = if parameter.is_const { "const " } else { "" };
            let pointer = if parameter.is_pointer { "*" } else { "" };
            format!("{constant}{dtype}{pointer} {}", parameter.name)
        });
        let parameters: Vec<String> = parameters.collect();
        let template = signature.template.join(" ");
        format!(
            "{} <{template}> ({})",
            signature.name,
            parameters.join(", ")
        )
    }

    #[test]
    fn kernels_are_found_in_cuda() {
        let text = "#include <x>\n#define F(x) (x)\n\
            __device__ float square(float x) { return x * x; }\n\
            // __global__ void not_this(int) {}\n\
            extern \"C\" __global__ void __launch_bounds__(256)\nadd(float *__restrict__ c, \
            const float* a, float const * b /* in */, unsigned int n) { if (n > 1) { square(1); } }\n\
            template <typename T, int BLOCK = 128>\n__global__ void scale(T *x, double by, Strange s)\n\
            { }\n__global__ void declared(int n);\n";
        let found = signatures(text, DeclaredLanguage::Cuda);
        let found: Vec<String> = found.iter().map(shown).collect();
        assert_eq!(
            found,
            [
                "add <> (f32* c, const f32* a, const f32* b, u32 n)",
                "scale <T BLOCK> (?* x, f64 by, ? s)",
            ]
        );
    }

    /// No guess is silent: the draft says what it does not know.
    #[test]
    fn types_without_elements_are_doubts() {
        let text = "typedef struct { int n; } Params;\n\
            void f(float **rows, float *columns[4], float4 v, Params p, const float *x, float y[]) {}\n";
        let found = signatures(text, DeclaredLanguage::C);
        assert_eq!(
            shown(&found[0]),
            "f <> (?* rows, ?* columns, ? v, ? p, const f32* x, f32* y)"
        );
        let manifest =
            crate::user::draft::manifest(("f.c", text), (&found[0], &[]), DeclaredLanguage::C);
        for doubt in [
            "? the type `float *` is not known",
            "# ? `v` is taken for a whole number of 32 bits: its type is float4",
            "# ? `p` is taken for a whole number of 32 bits: its type is Params",
        ] {
            assert!(manifest.contains(doubt), "{doubt}\n{manifest}");
        }
        assert!(!manifest.contains("`x` is taken"), "{manifest}");
    }

    #[test]
    fn functions_are_found_in_c() {
        let text = "static int helper(int x) { return x; }\n\
            void f(double y[restrict], const int64_t *x, size_t n)\n{\n\
            for (int i = 0; i < n; i++) { y[i] = helper(x[i]); }\n}\nint g(void) { return 1; }\n\
            void h(int (*compare)(int, int), int n) {}\n\
            void k(float *y, int n = 1024)\n{ if (n) { y[0] = 1; } else if ( n > 1 ) { n = 2; } }\n";
        let found = signatures(text, DeclaredLanguage::C);
        let found: Vec<String> = found.iter().map(shown).collect();
        assert_eq!(
            found,
            [
                "f <> (f64* y, const i64* x, u64 n)",
                "g <> ()",
                "h <> (?* compare, i32 n)",
                "k <> (f32* y, i32 n)",
            ]
        );
        let of_file = "static int twice(int n)\n{ if (n) { n = 1; } else if ( n > 1 ) { n = 2; } }";
        let found = signatures(of_file, DeclaredLanguage::C);
        assert_eq!(
            found.iter().map(shown).collect::<Vec<_>>(),
            ["twice <> (i32 n)"]
        );
    }

    #[test]
    fn what_is_read_before_it_is_written_is_told() {
        for (body, is_read) in [
            ("{ y[i] = a * x[i]; }", false),
            ("{ y[i] = a * x[i] + y[i]; }", true),
            ("{ y[i] += x[i]; }", true),
            ("{ if (y[i] == 0) y[i] = 1; }", true),
            ("{ y[0] = x[0]; for (;;) y[i] = y[i - 1] + x[i]; }", false),
            ("{ y[i * n + j] = 0; y[i * n + j] += x[k]; }", false),
            ("{ *y = 0; *y += x[0]; }", false),
            ("{ *y += x[0]; }", true),
            ("{ atomicAdd(&y[i], x[i]); }", true),
            ("{ float *end = y; fill(y, x); my[i] += yy[i]; }", false),
        ] {
            assert_eq!(is_read_first(body, "y"), is_read, "{body}");
        }
    }
}
