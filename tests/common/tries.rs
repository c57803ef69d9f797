//! Tests of what a busy machine may delay.

/// What is wrong with rtrace is so in each try. Prints how often it had to try again.
pub fn in_one_of_some_tries(tries: usize, attempt: impl Fn() -> Result<(), String>) {
    let faults: Vec<String> = (0..tries).map_while(|_| attempt().err()).collect();
    assert!(faults.len() < tries, "{faults:#?}");
    if !faults.is_empty() {
        println!("tried again {} times: {faults:#?}", faults.len());
    }
}
