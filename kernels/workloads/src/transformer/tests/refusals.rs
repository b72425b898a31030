//! What is refused, and with which words.

use super::transformer;
use sweeper_program::workload::ParameterError;

fn refusal(words: &str) -> String {
    let refused = transformer(words).map(|_| ());
    refused.expect_err(words).to_string()
}

const CUSTOM: &str = "context=4 d_model=12 d_ff=8 layers=1";

#[test]
fn sizes_that_make_no_model_are_refused() {
    let uneven = refusal(&format!("{CUSTOM} heads=5"));
    assert!(
        uneven.starts_with("`heads` = 5 does not divide `d_model` = 12"),
        "{uneven}"
    );
    let odd = refusal(&format!("{CUSTOM} heads=4"));
    assert!(
        odd.starts_with("`d_model` = 12 by `heads` = 4 makes heads of 3 elements"),
        "{odd}"
    );
    let missing = refusal(CUSTOM);
    assert!(
        missing.starts_with("`heads` is missing: a custom model needs `d_model`"),
        "{missing}"
    );
    let nothing = refusal("size=small context=0");
    assert!(
        nothing.starts_with("`context` = 0: expected a whole number from 1"),
        "{nothing}"
    );
    let unknown = refusal("size=huge context=4");
    assert!(
        unknown.contains("one of custom, small, medium, large, xl, 2.7B"),
        "{unknown}"
    );
}

#[test]
fn a_named_size_may_be_repeated_and_not_contradicted() {
    assert!(transformer("size=small context=4 d_model=768 heads=12").is_ok());
    let contradiction = refusal("size=small context=4 d_model=512");
    assert!(
        contradiction.starts_with("`d_model` = 512 contradicts `size` = small, where it is 768"),
        "{contradiction}"
    );
}

#[test]
fn tensors_that_are_too_large_are_refused() {
    let embedding =
        refusal("context=1 vocabulary=2147483648 d_model=1048576 d_ff=2 layers=1 heads=2");
    assert_eq!(
        embedding,
        "`vocabulary` = 2147483648 and `d_model` = 1048576 make the embedding too large: no tensor \
         has more than 2^44 elements"
    );
    let logits = refusal("size=small context=1048576 vocabulary=100000000");
    assert!(logits.contains("make the logits too large"), "{logits}");
    let scores = refusal("size=small context=1048576");
    assert!(
        scores.contains("make the scores of attention too large"),
        "{scores}"
    );
    assert!(matches!(
        transformer("size=small context=1048576"),
        Err(ParameterError::Together { .. })
    ));
}
