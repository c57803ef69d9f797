use rtrace_bpf::*;
fn main() {
    for mechanism in Mechanism::ALL {
        let r = Programs::load(&LoadOptions { mechanism, ring_bytes: 4096, follow_children: false });
        println!("{:?} {:?}", mechanism.name(), r.as_ref().err());
    }
    println!("{:?}", probe());
}
