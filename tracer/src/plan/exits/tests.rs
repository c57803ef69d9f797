#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::testing::{BASE, image};
use super::*;

/// The exits of the function that is all of `code`, relative to its start, with conditions;
/// `others` are the offsets of further functions.
fn exits(code: &[u8], others: &[u64]) -> Result<Vec<(u64, Option<u8>)>, Unprovable> {
    Ok(found(code, others)?.leaves.into_iter().map(|leave| (leave.address - BASE, leave.condition)).collect())
}

/// The same, with returns seen early, and with the words up to the return address.
fn early(code: &[u8]) -> Vec<(u64, Option<u8>, u32)> {
    let leaves = found(code, &[]).unwrap().early;
    leaves.into_iter().map(|leave| (leave.address - BASE, leave.condition, leave.words)).collect()
}

fn found(code: &[u8], others: &[u64]) -> Result<Exits, Unprovable> {
    let size = others.iter().copied().min().unwrap_or(code.len() as u64);
    let image = image(code);
    let entries = others.iter().map(|offset| BASE + offset).chain([BASE]).collect();
    let text = Text::new(&image, entries);
    find(&FunctionCode { text: &text, entry: BASE, size })
}

#[test]
fn what_runs_through_once_and_waits_for_nothing_is_brief() {
    let is_brief = |code: &[u8]| found(code, &[]).map(|exits| exits.is_brief);
    let many = |count: usize| [&[0x90].repeat(count)[..], &[0xc3]].concat();
    assert_eq!(is_brief(&many(31)), Ok(true));
    assert_eq!(is_brief(&many(32)), Ok(false));
    assert_eq!(is_brief(&[0x85, 0xff, 0x74, 0x02, 0xff, 0xc0, 0xc3]), Ok(true)); // test edi,edi; je 6; inc eax; ret
    assert_eq!(is_brief(&[0x90, 0xff, 0xcf, 0x75, 0xfc, 0xc3]), Ok(false)); // nop; 1: dec edi; jne 1; ret
    assert_eq!(is_brief(&[0xff, 0xd0, 0xc3]), Ok(false)); // call rax; ret
    assert_eq!(is_brief(&[0x0f, 0x05, 0xc3]), Ok(false)); // syscall; ret
    assert_eq!(is_brief(&[0xf3, 0xaa, 0xc3]), Ok(false)); // rep stosb; ret
    assert_eq!(is_brief(&[0xf0, 0xff, 0x07, 0xc3]), Ok(false)); // lock inc dword [rdi]; ret
    assert_eq!(is_brief(&[0x87, 0x07, 0xc3]), Ok(false)); // xchg [rdi],eax; ret
    assert_eq!(is_brief(&[0x0f, 0xa2, 0xc3]), Ok(false)); // cpuid; ret
    assert_eq!(is_brief(&[0x0f, 0x0b]), Ok(false)); // ud2: it never returns
}

#[test]
fn what_a_brief_function_does_is_told() {
    let tell = |code: &[u8]| found(code, &[]).map(|exits| (exits.returns, exits.accesses_memory));
    assert_eq!(tell(&[0x31, 0xc0, 0xc3]), Ok((true, false))); // xor eax,eax; ret
    assert_eq!(tell(&[0x53, 0x5b, 0xc3]), Ok((true, false))); // push rbx; pop rbx; ret
    assert_eq!(tell(&[0x8b, 0x07, 0xff, 0xe0]), Ok((false, true))); // mov eax,[rdi]; jmp rax
}

#[test]
fn every_return_is_found_and_nothing_that_looks_like_one() {
    let code = [
        0x85, 0xff, // test edi,edi
        0x74, 0x03, // je 7
        0xb0, 0xc3, // mov al,0xc3
        0xc3, // ret
        0xc2, 0x08, 0x00, // ret 8
        0xc3, 0xc3, // data
    ];
    assert_eq!(exits(&code, &[]), Ok(vec![(6, None), (7, None)]));
}

#[test]
fn a_jump_to_another_function_is_an_exit_under_its_condition() {
    let code = [
        0x85, 0xff, // test edi,edi
        0x7e, 0x02, // jle 6
        0xeb, 0x01, // jmp 7
        0xc3, // 6: another function
        0xc3, // 7: a third
    ];
    assert_eq!(exits(&code, &[6, 7]), Ok(vec![(2, Some(14)), (4, None)]));
}

#[test]
fn a_jump_to_its_own_entry_is_another_call() {
    let code = [0xff, 0xcf, 0x75, 0xfc, 0xc3]; // dec edi; jne 0; ret
    assert_eq!(exits(&code, &[]), Ok(vec![(2, Some(5)), (4, None)]));
}

#[test]
fn a_jump_that_leaves_its_frame_is_no_tail_call() {
    let code = [0x53, 0xeb, 0x00, 0xc3]; // push rbx; jmp 3
    assert_eq!(exits(&code, &[3]), Err(Unprovable::FrameLeft));
}

#[test]
fn a_return_through_a_pushed_address_is_no_exit() {
    assert_eq!(exits(&[0x57, 0xc3], &[]), Err(Unprovable::PushedReturn)); // push rdi; ret
}

#[test]
fn what_follows_a_call_may_be_nonsense_and_what_follows_else_may_not() {
    let call_abort = [0x85, 0xff, 0x74, 0x01, 0xc3, 0xe8, 0x00, 0x10, 0x00, 0x00]; // test; je 5; ret; 5: call
    assert_eq!(exits(&call_abort, &[]), Ok(vec![(4, None)]));
    assert_eq!(exits(&[&call_abort[..], &[0x06]].concat(), &[]), Ok(vec![(4, None)]));
    assert_eq!(exits(&[0x90, 0x06], &[]), Err(Unprovable::Undecodable));
    assert_eq!(exits(&[0x90, 0x31, 0xc0], &[]), Err(Unprovable::RunsOn));
    assert_eq!(exits(&[0x31, 0xc0, 0xc3], &[2]), Err(Unprovable::RunsOn));
}

#[test]
fn a_jump_may_skip_a_lock_prefix_and_nothing_else() {
    let code = [
        0x74, 0x01, // je 3
        0xf0, 0x0f, 0xb1, 0x0f, // 2: lock; 3: cmpxchg [rdi],ecx
        0xc3, // ret
    ];
    assert_eq!(exits(&code, &[]), Ok(vec![(6, None)]));
    let code = [0x74, 0x01, 0xb0, 0xc3, 0xc3]; // je 3; 2: mov al,0xc3; ret
    assert_eq!(exits(&code, &[]), Err(Unprovable::Overlap));
}

#[test]
fn a_jump_through_a_loaded_pointer_is_a_tail_call() {
    let load = [0x48, 0x8b, 0x07, 0xff, 0xe0]; // mov rax,[rdi]; jmp rax
    assert_eq!(exits(&load, &[]), Ok(vec![(3, None)]));
    assert_eq!(exits(&[0xff, 0xe6], &[]), Ok(vec![(0, None)])); // jmp rsi
    assert_eq!(exits(&[0xff, 0x60, 0x10], &[]), Ok(vec![(0, None)])); // jmp [rax+0x10]
    assert_eq!(exits(&[&[0x53][..], &load].concat(), &[]), Err(Unprovable::IndirectJump)); // push rbx first
    assert_eq!(exits(&[0xff, 0xe3], &[]), Err(Unprovable::IndirectJump)); // jmp rbx
    assert_eq!(exits(&[0xff, 0x24, 0xf8], &[]), Err(Unprovable::IndirectJump)); // jmp [rax+rdi*8]
}

#[test]
fn a_pointer_must_be_one_on_every_way() {
    let code = [
        0x48, 0x8b, 0x07, // mov rax,[rdi]
        0x74, 0x03, // je 8
        0x48, 0x8b, 0x06, // mov rax,[rsi]
        0xff, 0xe0, // 8: jmp rax
    ];
    assert_eq!(exits(&code, &[]), Ok(vec![(8, None)]));
    let computed = [&code[..5], &[0x48, 0x01, 0xf0], &code[8..]].concat(); // add rax,rsi
    assert_eq!(exits(&computed, &[]), Err(Unprovable::IndirectJump));
}

/// A switch over two cases; `check` compares the index, the table holds these offsets from itself.
fn switch(check: &[u8], offsets: [i32; 2]) -> Vec<u8> {
    let mut code = check.to_vec();
    let body = [
        0x48, 0x8d, 0x15, 0x0b, 0x00, 0x00, 0x00, // lea rdx,[table]
        0x48, 0x63, 0x04, 0xba, // movsxd rax,[rdx+rdi*4]
        0x48, 0x01, 0xd0, // add rax,rdx
        0xff, 0xe0, // jmp rax
        0xc3, // first case
        0xc3, // second case
    ];
    code.extend(body);
    code.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    code
}

#[test]
fn a_table_is_read_as_far_as_its_check_allows() {
    let check = [0x83, 0xff, 0x01, 0x77, 0x10]; // cmp edi,1; ja to the first case
    assert_eq!(exits(&switch(&check, [-2, -1]), &[]), Ok(vec![(21, None), (22, None)]));
    assert_eq!(exits(&switch(&check, [-2, 0x1000]), &[]), Err(Unprovable::IndirectJump), "a target outside");
    assert_eq!(exits(&switch(&[], [-2, -1]), &[]), Err(Unprovable::IndirectJump), "no check");
}

#[test]
fn a_refused_exit_is_no_site() {
    assert_eq!(exits(&[0x3e, 0xff, 0xe6], &[]), Err(Unprovable::RefusedSite)); // notrack jmp rsi
    assert_eq!(exits(&[0xe3, 0x01, 0xc3, 0xc3], &[3]), Err(Unprovable::UnusualExit)); // jrcxz 3
    assert_eq!(exits(&[0xcb], &[]), Err(Unprovable::UnusualExit)); // far return
}

/// Any bytes give an answer, in bounded time, and exits are instructions of the function.
#[test]
fn random_code_is_survived() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for _ in 0..20_000 {
        let code: Vec<u8> = (0..64).map(|_| random()).collect();
        for (offset, _) in exits(&code, &[32, 48]).unwrap_or_default() {
            assert!(offset < 64);
        }
    }
}

#[test]
fn effort_is_bounded_by_the_size_of_the_code() {
    let code = [&[0x90; 255][..], &[0xc3]].concat();
    let image = image(&code);
    let text = Text::new(&image, Vec::new());
    let results: Vec<_> =
        (0..255).map(|offset| find(&FunctionCode { text: &text, entry: BASE + offset, size: 256 - offset })).collect();
    assert!(results[0].is_ok());
    assert!(matches!(results[254], Err(Unprovable::TooMuch)));
}

/// `test edi,edi`, after which conditional jumps make sense.
const TEST: [u8; 2] = [0x85, 0xff];

#[test]
fn a_return_is_seen_at_the_check_before_it() {
    let protected = [
        0x48, 0x83, 0xec, 0x18, // sub rsp,24
        0xff, 0xd0, // 4: call rax
        0x85, 0xff, // test edi,edi
        0x75, 0x05, // 8: jne 15
        0x48, 0x83, 0xc4, 0x18, // add rsp,24
        0xc3, // ret
        0x0f, 0x0b, // 15: ud2
    ];
    assert_eq!(early(&protected), [(8, Some(4), 3)]);
}

/// A call, after it a jump to the end, or another call and this line.
fn joined(line: &[u8]) -> Vec<u8> {
    let over = 2 + line.len() as u8;
    let head = [
        0x53, // push rbx
        0xff, 0xd0, // call rax
        0x85, 0xff, // test edi,edi
        0x74, over, // 5: je 9 + n
        0xff, 0xd1, // call rcx
    ];
    [&head[..], line, &[0x5b, 0xc3]].concat() // 9 + n: pop rbx; ret
}

#[test]
fn a_return_is_seen_at_every_jump_to_it_or_not_early_at_all() {
    let shared = |last: &[u8]| {
        let head = [
            0x53, // push rbx
            0xff, 0xd0, // call rax
            0x85, 0xff, // test edi,edi
            0x74, 0x07, // 5: je 14
            0xff, 0xd1, // call rcx
            0xeb, 0x03, // 9: jmp 14
            0xff, 0xd2, // 11: call rdx, which nothing reaches
        ];
        [&head[..], last, &[0x5b, 0xc3]].concat() // 14: pop rbx; ret
    };
    // 13: nop: never reached, and alone it would be single-stepped: but it is emulated and no jump.
    assert_eq!(early(&shared(&[0x90])), [(5, Some(4), 1), (9, None, 1)]);
    assert_eq!(early(&joined(&[])), [(10, None, 0)], "a call comes to it");
}

#[test]
fn one_way_to_a_return_may_be_stepped() {
    let line = [0x31, 0xc0]; // xor eax,eax
    assert_eq!(early(&joined(&line)), [(5, Some(4), 1), (9, None, 1)]);
}

#[test]
fn calls_do_not_pay_for_jumps_that_lead_on_again_and_again() {
    let looping = [
        0xff, 0xcf, // dec edi
        0x74, 0x04, // 2: je 8
        0xff, 0xd0, // call rax
        0xeb, 0xf8, // jmp 0
        0xc3, // 8: ret
    ];
    assert_eq!(early(&looping), [(2, Some(4), 0), (6, None, 0)], "the jump to the entry is another call");
    let inner_loop = [&[0x90][..], &looping].concat();
    assert_eq!(early(&inner_loop), [(9, None, 0)]);
    // Calls rax before each `je` to the end but the first, and returns.
    let chain = |jumps: u8| {
        let end = 2 + 6 * jumps + 2;
        let part = |number| [&TEST[..], &[0x74, end - 6 * number - 4], &[0xff, 0xd0]].concat();
        [(0..jumps).flat_map(part).collect(), vec![0xc3, 0x90, 0x90, 0x90, 0xc3]].concat()
    };
    assert_eq!(early(&chain(2)), [(2, Some(4), 0), (8, Some(4), 0), (12, None, 0)]);
    assert_eq!(early(&chain(3)), [(18, None, 0), (22, None, 0)]);
}

#[test]
fn a_jump_through_a_pointer_is_seen_at_the_check_before_it() {
    let code = [
        0x53, // push rbx
        0xff, 0xd0, // call rax
        0x48, 0x8b, 0x47, 0x08, // mov rax,[rdi+8]
        0x48, 0x85, 0xc0, // test rax,rax
        0x74, 0x03, // 10: je 15
        0x5b, // pop rbx
        0xff, 0xe0, // jmp rax
        0x0f, 0x0b, // 15: ud2
    ];
    assert_eq!(early(&code), [(10, Some(5), 1)]);
}

#[test]
fn a_way_with_too_many_jumps_to_it_is_stepped_behind_them() {
    // Jumps to 1: at each check and to 2: when all is done.
    let check = |left: u8| [&TEST[..], &[0x74, 6 * left]].concat(); // test edi,edi; je 1
    let checks: Vec<u8> = [3, 2, 1].into_iter().flat_map(|left| [check(left), vec![0xff, 0xd0]].concat()).collect();
    let code = [
        &[0x53][..], // push rbx
        &checks,
        &[0xff, 0xd1], // 19: call rcx
        &[0xeb, 0x02], // 21: jmp 2
        &[0x31, 0xc0], // 23: 1: xor eax,eax
        &[0x5b, 0xc3], // 25: 2: pop rbx; ret
    ];
    assert_eq!(early(&code.concat()), [(21, None, 1), (23, None, 1)]);
}

#[test]
fn a_jump_of_which_both_ways_return_is_an_exit_without_condition() {
    let code = [
        0xff, 0xd0, // call rax
        0x85, 0xff, // test edi,edi
        0x74, 0x03, // 4: je 9
        0x31, 0xc0, // xor eax,eax
        0xc3, // ret
        0xc3, // 9: ret
    ];
    assert_eq!(early(&code), [(4, None, 0)]);
}

#[test]
fn nothing_that_waits_is_between_an_early_site_and_the_return() {
    let between = |code: &[u8]| {
        let head = [&[0x90][..], &TEST, &[0x75, code.len() as u8 + 1]].concat(); // nop; test; 3: jne 6 + n
        [&head[..], code, &[0xc3, 0x0f, 0x0b]].concat() // ret; ud2
    };
    assert_eq!(early(&between(&[0x8b, 0x07])), [(3, Some(4), 0)]); // mov eax,[rdi]
    let waits: [&[u8]; 4] = [&[0xf0, 0xff, 0x07], &[0x87, 0x07], &[0xf3, 0xaa], &[0x0f, 0x05]];
    for wait in waits {
        assert_eq!(early(&between(wait)), [(5 + wait.len() as u64, None, 0)], "{wait:x?}");
    }
    assert_eq!(early(&between(&[0x31, 0xc0].repeat(40))), [(85, None, 0)]);
}
