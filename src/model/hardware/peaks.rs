//! Theoretical rates of well-known devices by product name, from their makers' data sheets.
//!
//! Rates of tensor cores are without sparsity, which the sheets of NVIDIA's H100 and H200 double.
//! Devices that are not listed have no peaks here: none is guessed from clocks and numbers of
//! cores.

/// Theoretical rates of one product, in 10^9 a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// How its driver calls it.
    pub name: &'static str,
    /// Where the numbers are from.
    pub source: &'static str,
    /// Bytes to and from memory.
    pub bandwidth_gbps: f64,
    /// f32 operations outside of tensor cores.
    pub f32_gflops: f64,
    /// tf32 operations.
    pub tf32_gflops: f64,
    /// bf16 operations.
    pub bf16_gflops: f64,
}

impl Peaks {
    /// The peak of a kind of arithmetic.
    pub fn gflops(&self, arithmetic: &str) -> Option<f64> {
        match arithmetic {
            "f32" => Some(self.f32_gflops),
            "tf32" => Some(self.tf32_gflops),
            "bf16" => Some(self.bf16_gflops),
            _ => None,
        }
    }
}

const A100: &str = "NVIDIA A100 Tensor Core GPU data sheet (June 2021)";
const H100: &str = "NVIDIA H100 Tensor Core GPU data sheet, without sparsity";
const H200: &str = "NVIDIA H200 Tensor Core GPU data sheet, without sparsity";

const fn a100(name: &'static str, bandwidth_gbps: f64) -> Peaks {
    Peaks {
        name,
        source: A100,
        bandwidth_gbps,
        f32_gflops: 19_500.0,
        tf32_gflops: 156_000.0,
        bf16_gflops: 312_000.0,
    }
}

/// The rate of tf32 is the sheet's, with sparsity: half of it without, and as much for bf16
/// without.
const fn hopper(
    name: &'static str,
    source: &'static str,
    bandwidth_gbps: f64,
    f32_gflops: f64,
    sparse_tf32_gflops: f64,
) -> Peaks {
    Peaks {
        name,
        source,
        bandwidth_gbps,
        f32_gflops,
        tf32_gflops: sparse_tf32_gflops / 2.0,
        bf16_gflops: sparse_tf32_gflops,
    }
}

const KNOWN: &[Peaks] = &[
    a100("NVIDIA A100-SXM4-40GB", 1_555.0),
    a100("NVIDIA A100-SXM4-80GB", 2_039.0),
    a100("NVIDIA A100-PCIE-40GB", 1_555.0),
    a100("NVIDIA A100 80GB PCIe", 1_935.0),
    hopper("NVIDIA H100 80GB HBM3", H100, 3_350.0, 67_000.0, 989_000.0),
    hopper("NVIDIA H100 PCIe", H100, 2_000.0, 51_000.0, 756_000.0),
    hopper("NVIDIA H100 NVL", H100, 3_900.0, 60_000.0, 835_000.0),
    hopper("NVIDIA H200", H200, 4_800.0, 67_000.0, 989_000.0),
    hopper("NVIDIA H200 NVL", H200, 4_800.0, 60_000.0, 835_000.0),
];

/// The peaks of a product by the name that its driver gives.
pub fn known(name: &str) -> Option<&'static Peaks> {
    KNOWN.iter().find(|peaks| peaks.name == name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_known_by_their_whole_name() {
        assert_eq!(
            known("NVIDIA H200").unwrap().gflops("tf32"),
            Some(494_500.0)
        );
        assert_eq!(known("NVIDIA H200 NVL").unwrap().f32_gflops, 60_000.0);
        assert_eq!(known("NVIDIA H200 MIG 1g.18gb"), None);
        assert_eq!(known("Intel(R) Xeon(R) Processor"), None);
        assert_eq!(known("NVIDIA H200").unwrap().gflops("f64"), None);
    }
}
