//! Tasks that change threads, one panic in ten, and counted calls.

use std::io::Write as _;

#[no_mangle]
#[inline(never)]
pub extern "C" fn w_step(n: u64) -> u64 {
    std::hint::black_box(n) * 3 % 1009
}

#[tokio::main(flavor = "multi_thread", worker_threads = 3)]
async fn main() {
    println!("ready {}", std::process::id());
    std::io::stdout().flush().expect("it can be written");
    std::io::stdin().read_line(&mut String::new()).expect("it can be read");
    std::panic::set_hook(Box::new(|_| ()));
    let tasks: Vec<_> = (0..100_u64)
        .map(|n| {
            tokio::spawn(async move {
                let mut sum = n;
                for _ in 0..50 {
                    sum = w_step(sum + n);
                    tokio::task::yield_now().await;
                }
                assert!(n % 10 != 9, "one in ten");
                sum
            })
        })
        .collect();
    let (mut sum, mut failed) = (0, 0);
    for task in tasks {
        match task.await {
            Ok(of_task) => sum += of_task,
            Err(_) => failed += 1,
        }
    }
    println!("{sum} {failed}");
    println!("truth w_step 5000 0");
}
