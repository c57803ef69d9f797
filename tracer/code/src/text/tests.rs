#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing::{BASE, image};

/// Where control leaves a range that is all of `code`: targets of jumps and of tables from its start, and whether
/// it leaves through pointers. None where that is not known.
fn ways(code: &[u8]) -> Option<(Vec<i64>, Vec<i64>, bool)> {
    let image = image(code);
    let ways = Text::new(&image, vec![BASE]).ways_out(&(BASE..BASE + code.len() as u64));
    let offsets = |addresses: &[u64]| addresses.iter().map(|address| address.wrapping_sub(BASE) as i64).collect();
    (!ways.is_unknown).then(|| (offsets(&ways.targets), offsets(&ways.tables), ways.through_pointers))
}

const NOWHERE: Option<(Vec<i64>, Vec<i64>, bool)> = Some((Vec::new(), Vec::new(), false));

fn to(target: i64) -> Option<(Vec<i64>, Vec<i64>, bool)> {
    Some((vec![target], Vec::new(), false))
}

fn through_pointer() -> Option<(Vec<i64>, Vec<i64>, bool)> {
    Some((Vec::new(), Vec::new(), true))
}

#[test]
fn jumps_that_leave_are_found() {
    assert_eq!(ways(&[0x31, 0xc0, 0xc3]), NOWHERE); // xor eax,eax; ret
    assert_eq!(ways(&[0x74, 0x01, 0x90, 0xc3]), NOWHERE); // je 3; nop; 3: ret
    assert_eq!(ways(&[0x74, 0x10, 0xc3]), to(0x12)); // je 0x12; ret
    assert_eq!(ways(&[0xe9, 0, 0x10, 0, 0]), to(0x1005)); // jmp
    assert_eq!(ways(&[0x90, 0xeb, 0xfd]), to(0)); // nop; jmp 0
    assert_eq!(ways(&[0xe3, 0x20, 0xc3]), to(0x22)); // jrcxz; ret
}

/// Whoever has the code, and wherever it stands.
#[test]
fn jumps_with_a_loaded_stack_pointer_are_found_without_their_function() {
    let leaves = |code: &[u8]| leaves_frames(&image(&[&[0x31, 0xc0, 0xc3, 0x0f], code].concat()));
    assert!(leaves(&[0x48, 0x8b, 0x67, 0x30, 0xff, 0x67, 0x38])); // mov rsp,[rdi+48]; jmp [rdi+56]
    assert!(leaves(&[0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1])); // mov rsp,rcx; pop rcx; jmp rcx
    assert!(leaves(&[0x4c, 0x89, 0xc4, 0x4c, 0x89, 0xcd, 0x89, 0xf0, 0xff, 0xe2])); // mov rsp,r8; mov rbp,r9; mov eax,esi; jmp rdx
    assert!(leaves(&[0x49, 0x8b, 0x26, 0xff, 0xe0])); // mov rsp,[r14]; jmp rax
    assert!(!leaves(&[0x48, 0x89, 0xec, 0x5d, 0xff, 0xe6])); // mov rsp,rbp; pop rbp; jmp rsi
    assert!(!leaves(&[0x4c, 0x89, 0xe4, 0xff, 0xd0, 0xff, 0xe6])); // mov rsp,r12; call rax; jmp rsi
    assert!(!leaves(&[0x48, 0x89, 0xcc, 0xc3, 0xff, 0xe6])); // mov rsp,rcx; ret
    assert!(!leaves(&[0x48, 0x89, 0xcc, 0x48, 0x8d, 0x65, 0xd8, 0xff, 0xe6])); // mov rsp,rcx; lea rsp,[rbp-40]; jmp rsi
    assert!(!leaves(&[0x4c, 0x8b, 0x67, 0x30, 0xff, 0x67, 0x38])); // mov r12,[rdi+48]; jmp [rdi+56]
    assert!(!leaves(&[0x48, 0x89, 0xcc])); // mov rsp,rcx
}

#[test]
fn what_runs_on_leaves_at_its_end() {
    assert_eq!(ways(&[0x31, 0xc0]), to(2)); // xor eax,eax
    assert_eq!(ways(&[0x31, 0xc0, 0x90]), to(3)); // xor eax,eax; nop
    assert_eq!(ways(&[0x74, 0xfe]), Some((vec![0, 2], Vec::new(), false))); // 0: je 0
    assert_eq!(ways(&[0xc3, 0x90, 0xcc]), NOWHERE); // ret; nop; int3
    assert_eq!(ways(&[0xe8, 0, 0x10, 0, 0]), NOWHERE); // call
    assert_eq!(ways(&[0x0f, 0x0b]), NOWHERE); // ud2
    assert_eq!(ways(&[0x0f, 0x05]), to(2)); // syscall
}

/// As OCaml's `raise`, `__builtin_longjmp` and musl's `longjmp` do.
#[test]
fn a_jump_with_another_stack_pointer_is_no_tail_call() {
    // mov rsp,[r14+16]; pop [r14+16]; pop r11; jmp r11
    assert_eq!(ways(&[0x49, 0x8b, 0x66, 0x10, 0x41, 0x8f, 0x46, 0x10, 0x41, 0x5b, 0x41, 0xff, 0xe3]), NOWHERE);
    assert_eq!(ways(&[0x48, 0x8b, 0x67, 0x30, 0xff, 0x67, 0x38]), NOWHERE); // mov rsp,[rdi+48]; jmp [rdi+56]
    assert_eq!(ways(&[0x48, 0x89, 0xcc, 0xff, 0x25, 0, 0, 0, 0]), NOWHERE); // mov rsp,rcx; jmp [rip]
    assert_eq!(ways(&[0x48, 0x89, 0xcc, 0x50, 0xc3]), NOWHERE); // mov rsp,rcx; push rax; ret
    // The function's own frame: mov rsp,rbp; pop rbp; jmp rsi. mov rsp,rbx; leave; jmp rsi. lea rsp,[r10-8]; jmp rsi
    assert_eq!(ways(&[0x48, 0x89, 0xec, 0x5d, 0xff, 0xe6]), through_pointer());
    assert_eq!(ways(&[0x48, 0x89, 0xdc, 0xc9, 0xff, 0xe6]), through_pointer());
    assert_eq!(ways(&[0x49, 0x8d, 0x62, 0xf8, 0xff, 0xe6]), through_pointer());
    // One of the ways to the jump does not come by the load: je 5; mov rsp,rcx; 5: jmp rsi
    assert_eq!(ways(&[0x74, 0x03, 0x48, 0x89, 0xcc, 0xff, 0xe6]), through_pointer());
}

#[test]
fn nothing_is_known_of_what_may_be_data() {
    assert_eq!(ways(&[0xc3, 0x06]), None); // ret; nonsense
    assert_eq!(ways(&[0x74, 0x01, 0xb0, 0xc3, 0xc3]), None); // je 3; 2: mov al,0xc3; ret
    assert_eq!(ways(&[0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x0f, 0xc3]), NOWHERE); // je 3; 2: lock; 3: cmpxchg; ret
}

#[test]
fn pointers_are_told_from_what_is_computed() {
    assert_eq!(ways(&[0xff, 0x25, 0, 0, 0, 0]), through_pointer()); // jmp [rip]
    assert_eq!(ways(&[0xff, 0xe6]), through_pointer()); // jmp rsi
    assert_eq!(ways(&[0x48, 0x8b, 0x07, 0xff, 0xe0]), through_pointer()); // mov rax,[rdi]; jmp rax
    assert_eq!(ways(&[0xff, 0x60, 0x10]), through_pointer()); // jmp [rax+16]
    assert_eq!(ways(&[0x57, 0xc3]), through_pointer()); // push rdi; ret
    assert_eq!(ways(&[0x48, 0x89, 0x04, 0x24, 0xc3]), through_pointer()); // mov [rsp],rax; ret
    assert_eq!(ways(&[0xe8, 0, 0x10, 0, 0, 0xff, 0xe0]), through_pointer()); // call; jmp rax
    assert_eq!(ways(&[0xe8, 0, 0x10, 0, 0, 0xff, 0xe1]), None); // call; jmp rcx
    assert_eq!(ways(&[0x48, 0x01, 0xf8, 0xff, 0xe0]), None); // add rax,rdi; jmp rax
    // test eax,eax; je 7; mov rax,[rdi]; 7: jmp rax
    assert_eq!(ways(&[0x85, 0xc0, 0x74, 0x03, 0x48, 0x8b, 0x07, 0xff, 0xe0]), None);
    // mov rax,[rdi]; cmp rax,rsi; jne 10; ret; nop; 10: jmp rax
    assert_eq!(ways(&[0x48, 0x8b, 0x07, 0x48, 0x39, 0xf0, 0x75, 0x02, 0xc3, 0x90, 0xff, 0xe0]), through_pointer());
}

/// A switch over two cases, `ja` out of it; the table holds these offsets from itself.
fn switch(check: &[u8], offsets: [i32; 2]) -> Vec<u8> {
    let code = [
        0x48, 0x8d, 0x15, 0x0b, 0x00, 0x00, 0x00, // lea rdx,[table]
        0x48, 0x63, 0x04, 0xba, // movsxd rax,[rdx+rdi*4]
        0x48, 0x01, 0xd0, // add rax,rdx
        0xff, 0xe0, // jmp rax
        0xc3, 0xc3, // cases
    ];
    [check, &code, &offsets[0].to_le_bytes(), &offsets[1].to_le_bytes()].concat()
}

/// The ways out of such a switch without its table.
fn ways_of_switch(check: &[u8], offsets: [i32; 2]) -> Option<(Vec<i64>, Vec<i64>, bool)> {
    let code = switch(check, offsets);
    let image = image(&code);
    let ways = Text::new(&image, vec![BASE]).ways_out(&(BASE..BASE + code.len() as u64 - 8));
    let offsets = |addresses: &[u64]| addresses.iter().map(|address| address.wrapping_sub(BASE) as i64).collect();
    (!ways.is_unknown).then(|| (offsets(&ways.targets), offsets(&ways.tables), ways.through_pointers))
}

#[test]
fn a_table_is_read_as_far_as_its_check_allows() {
    let check = [0x83, 0xff, 0x01, 0x77, 0x11]; // cmp edi,1; ja to the last case
    assert_eq!(ways_of_switch(&check, [-2, -1]), Some((Vec::new(), vec![21, 22], false)));
    assert_eq!(ways_of_switch(&check, [-2, 0x1000]), None, "a target outside");
    assert_eq!(ways_of_switch(&check, [-2, -3]), None, "a target inside an instruction");
    assert_eq!(ways_of_switch(&[], [-2, -1]), None, "no check");
}
