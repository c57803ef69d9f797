#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_code::copies::Registers;
use rtrace_code::testing::{BASE, image};
use rtrace_model::Step;

use super::*;

const EMULATED: SiteCost = SiteCost::Emulated;
const STEPPED: SiteCost = SiteCost::SingleStep;

/// A function `body`, and what stands around it.
#[derive(Clone, Copy, Default)]
struct Case<'a> {
    body: &'a [u8],
    /// Code after the function.
    behind: &'a [u8],
    /// Offset of another function.
    other: Option<u64>,
    keeps: Intact,
    /// Our programs do instructions themselves.
    steps: bool,
    /// It is to have a stub.
    wants_stub: bool,
}

impl Case<'_> {
    /// The offset of the function's site with its cost.
    fn site(self) -> Result<(u64, SiteCost), Reason> {
        self.planned().map(|site| (site.file_offset - BASE, site.cost))
    }

    fn planned(self) -> Result<EntrySite, Reason> {
        let image = image(&[self.body, self.behind].concat());
        let others = self.other.into_iter().map(|offset| BASE + offset);
        let text = Text::new(&image, others.chain([BASE]).collect());
        let entries = Entries {
            text: &text,
            emulated: Emulation { long_nops: true, steps: self.steps },
            keeps: &|_| self.keeps,
            wants_stub: &|_| self.wants_stub,
            jumps: &JumpFunctions::default(),
            is_of_go: &|_| false,
            markers: &[],
        };
        entries.sites(&[FunctionCode { entry: BASE, size: self.body.len() as u64 }]).remove(0)
    }
}

/// The site of the function that is all of `body`.
fn site(body: &[u8]) -> Result<(u64, SiteCost), Reason> {
    Case { body, ..Case::default() }.site()
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `test rdi,rdi; push rbx; ret`
const TEST_PUSH: [u8; 5] = [0x48, 0x85, 0xff, 0x53, 0xc3];

#[test]
fn an_emulated_first_instruction_stays() {
    assert_eq!(site(&[0x53, 0x55, 0xc3]), Ok((0, EMULATED))); // push rbx; push rbp; ret
}

#[test]
fn a_site_slides_to_what_is_emulated() {
    assert_eq!(site(&TEST_PUSH), Ok((3, EMULATED)));
    assert_eq!(site(&[&ENDBR64[..], &TEST_PUSH].concat()), Ok((7, EMULATED)));
    assert_eq!(site(&[0x85, 0xff, 0x74, 0x00, 0xc3]), Ok((2, EMULATED))); // test edi,edi; je 4; 4: ret
    assert_eq!(site(&[0x31, 0xc0, 0xe8, 0x00, 0x10, 0, 0]), Ok((2, EMULATED))); // xor eax,eax; call
}

#[test]
fn a_site_stays_where_nothing_follows_that_is_emulated() {
    assert_eq!(site(&[0x31, 0xc0, 0xc3]), Ok((0, STEPPED))); // xor eax,eax; ret
    assert_eq!(site(&[0x31, 0xc0, 0xff, 0xe7, 0x53]), Ok((0, STEPPED))); // xor eax,eax; jmp rdi; push
    assert_eq!(site(&[0x31, 0xc0, 0x0f, 0x05, 0x53]), Ok((0, STEPPED))); // xor eax,eax; syscall; push
    assert_eq!(site(&[0x31, 0xc0]), Ok((0, STEPPED)));
    assert_eq!(site(&[&[0x31, 0xc0].repeat(40)[..], &[0x53, 0xc3]].concat()), Ok((0, STEPPED)));
}

#[test]
fn a_site_does_not_pass_what_moves_the_stack_pointer_nobody_knows_where() {
    let movers: [&[u8]; 5] = [
        &[0x8f, 0x07],             // pop [rdi]
        &[0x48, 0x89, 0xfc],       // mov rsp,rdi
        &[0x48, 0x83, 0xe4, 0xe0], // and rsp,-32
        &[0x48, 0x83, 0xec, 0x04], // sub rsp,4
        &[0xc9],                   // leave
    ];
    for mover in movers {
        assert_eq!(site(&[mover, &[0x53, 0xc3]].concat()), Ok((0, STEPPED)), "{mover:x?}");
    }
}

#[test]
fn a_site_knows_how_far_the_return_address_is() {
    let movers: [(&[u8], u32); 4] = [
        (&[0x48, 0x83, 0xec, 0x18], 3),                               // sub rsp,24
        (&[0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00], 512),           // sub rsp,4096
        (&[0x6a, 0x01], 1),                                           // push 1
        (&[0x48, 0x89, 0xe0, 0x48, 0x83, 0xec, 0x10, 0x31, 0xc9], 2), // mov rax,rsp; sub rsp,16; xor ecx,ecx
    ];
    for (mover, words) in movers {
        let body = [mover, &[0xe8, 0, 0x10, 0, 0]].concat();
        assert_eq!(
            Case { body: &body, ..Case::default() }.planned(),
            Ok(EntrySite {
                file_offset: BASE + mover.len() as u64,
                cost: EMULATED,
                words,
                registers: Registers::default()
            }),
            "{mover:x?}"
        );
    }
}

#[test]
fn a_site_below_the_return_address_does_not_pass_a_store_to_it() {
    let frame = [0x48, 0x83, 0xec, 0x08]; // sub rsp,8
    let stores: [(&[u8], bool); 3] = [
        (&[0x48, 0x89, 0x3c, 0x24], true),        // mov [rsp],rdi
        (&[0x48, 0x89, 0x7c, 0x24, 0x08], false), // mov [rsp+8],rdi
        (&[0x48, 0x89, 0x7c, 0x24, 0x10], true),  // mov [rsp+16],rdi
    ];
    for (store, is_passed) in stores {
        let expected = if is_passed { (4 + store.len() as u64, EMULATED) } else { (0, STEPPED) };
        assert_eq!(site(&[&frame[..], store, &[0x53, 0xc3]].concat()), Ok(expected), "{store:x?}");
    }
}

#[test]
fn a_site_does_not_pass_a_store_to_the_return_address() {
    let stores: [(&[u8], bool); 8] = [
        (&[0x48, 0x89, 0x3c, 0x24], false),                         // mov [rsp],rdi
        (&[0x88, 0x44, 0x24, 0x07], false),                         // mov [rsp+7],al
        (&[0x48, 0x89, 0x44, 0x24, 0xf9], false),                   // mov [rsp-7],rax
        (&[0x48, 0x89, 0x44, 0x3c, 0x10], false),                   // mov [rsp+rdi+16],rax
        (&[0x48, 0x89, 0xe0, 0x48, 0x89, 0x38], false),             // mov rax,rsp; mov [rax],rdi
        (&[0x48, 0x8d, 0x44, 0x24, 0x08, 0x89, 0x78, 0xf8], false), // lea rax,[rsp+8]; mov [rax-8],edi
        (&[0x48, 0x89, 0x44, 0x24, 0x08], true),                    // mov [rsp+8],rax
        (&[0x48, 0x89, 0x44, 0x24, 0xf8], true),                    // mov [rsp-8],rax
    ];
    for (store, slides) in stores {
        let expected = if slides { (store.len() as u64, EMULATED) } else { (0, STEPPED) };
        assert_eq!(site(&[store, &[0x53, 0xc3]].concat()), Ok(expected), "{store:x?}");
    }
    let to_variable = [0x48, 0x89, 0x35, 0, 0x10, 0, 0, 0x53, 0xc3]; // mov [rip+4096],rsi; push rbx; ret
    assert_eq!(site(&to_variable), Ok((7, EMULATED)));
    let copied = [0x48, 0x89, 0xe0, 0x53, 0xc3]; // mov rax,rsp; push rbx; ret
    assert_eq!(site(&copied), Ok((3, EMULATED)));
}

#[test]
fn a_site_does_not_pass_what_may_fault() {
    assert_eq!(site(&[0x8b, 0x07, 0x53, 0xc3]), Ok((0, STEPPED))); // mov eax,[rdi]; push rbx; ret
    assert_eq!(site(&[0x31, 0xd2, 0xf7, 0xf6, 0x53, 0xc3]), Ok((0, STEPPED))); // xor edx,edx; div esi; push rbx
    assert_eq!(site(&[0x53, 0x8b, 0x07, 0xc3]), Ok((0, EMULATED))); // push rbx; mov eax,[rdi]
}

#[test]
fn a_site_does_not_pass_what_takes_long() {
    assert_eq!(site(&[0xf3, 0x48, 0xab, 0x53, 0xc3]), Ok((0, STEPPED))); // rep stosq; push rbx; ret
}

/// As the atomic operations of GLib, which are loops on a compare-and-exchange.
#[test]
fn a_site_does_not_pass_the_head_of_a_loop() {
    let code = [
        0x89, 0xf8, // mov eax,edi
        0x89, 0xc1, // 2: mov ecx,eax
        0x01, 0xf1, // add ecx,esi
        0x74, 0x06, // 6: je 14
        0xf0, 0x0f, 0xb1, 0x0f, // lock cmpxchg [rdi],ecx
        0x75, 0xf4, // jne 2
        0xc3, // 14: ret
    ];
    assert_eq!(site(&code), Ok((0, STEPPED)));
    let to_site = [&code[..13], &[0xf8], &code[14..]].concat(); // jne 6
    assert_eq!(site(&to_site), Ok((0, STEPPED)));
    let to_entry = [&code[..13], &[0xf2], &code[14..]].concat(); // jne 0: another call
    assert_eq!(site(&to_entry), Ok((6, EMULATED)));
}

#[test]
fn other_code_may_refer_to_the_entry_and_to_nothing_behind_it() {
    let case = Case { body: &TEST_PUSH, ..Case::default() };
    let referring: [&[u8]; 4] = [
        &[0xe9],             // jmp
        &[0xe8],             // call
        &[0x0f, 0x84],       // je
        &[0x48, 0x8d, 0x05], // lea rax,[…]
    ];
    for opcode in referring {
        for (target, slides) in [(0, true), (1, false), (3, false), (4, true)] {
            let end = (TEST_PUSH.len() + opcode.len()) as i32 + 4;
            let behind = [opcode, &(target - end).to_le_bytes()].concat();
            let expected = if slides { (3, EMULATED) } else { (0, STEPPED) };
            assert_eq!(Case { behind: &behind, ..case }.site(), Ok(expected), "{opcode:x?} {target}");
        }
    }
}

#[test]
fn nothing_that_is_loaded_may_point_behind_the_entry() {
    for (target, slides) in [(0, true), (2, false), (3, false), (4, true)] {
        let behind = [&[0xcc; 3][..], &(BASE + target).to_le_bytes()].concat();
        let expected = if slides { (3, EMULATED) } else { (0, STEPPED) };
        assert_eq!(Case { body: &TEST_PUSH, behind: &behind, ..Case::default() }.site(), Ok(expected), "{target}");
    }
}

#[test]
fn an_indirect_jump_must_be_understood() {
    let pointer = [&TEST_PUSH[..4], &[0x5b, 0xff, 0xe6]].concat(); // pop rbx; jmp rsi
    assert_eq!(site(&pointer), Ok((3, EMULATED)));
    let computed = [&TEST_PUSH[..4], &[0x5b, 0x48, 0x01, 0xf8, 0xff, 0xe0]].concat(); // add rax,rdi; jmp rax
    assert_eq!(site(&computed), Ok((0, STEPPED)));
}

#[test]
fn another_function_ends_the_line() {
    let case = Case { body: &TEST_PUSH, ..Case::default() };
    assert_eq!(Case { other: Some(3), ..case }.site(), Ok((0, STEPPED)));
    assert_eq!(Case { other: Some(4), ..case }.site(), Ok((3, EMULATED)));
}

#[test]
fn a_site_slides_over_a_nop_that_becomes_a_call_and_never_to_it() {
    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    assert_eq!(site(&[&ENDBR64[..], &NOP5, &[0x53, 0xc3]].concat()), Ok((9, EMULATED)));
    assert_eq!(site(&[&NOP5[..], &[0x31, 0xc0, 0xc3]].concat()), Ok((5, STEPPED))); // nop; xor eax,eax; ret
}

#[test]
fn a_site_slides_over_what_the_kernel_refuses() {
    let vector = [0xc5, 0xf8, 0x57, 0xc0]; // vxorps xmm0,xmm0,xmm0
    assert_eq!(site(&[&vector[..], &[0x53, 0xc3]].concat()), Ok((4, EMULATED)));
    assert_eq!(site(&[&vector[..], &[0x31, 0xc0, 0xc3]].concat()), Ok((4, STEPPED)));
    assert_eq!(site(&[&vector[..], &[0xff, 0xe6]].concat()), Ok((4, STEPPED))); // …; jmp rsi
    assert!(site(&[&vector[..], &vector].concat()).is_err());
}

#[test]
fn a_function_inside_an_instruction_ends_the_line() {
    let body = [0x48, 0x31, 0xc0, 0x55, 0x5d, 0xc3]; // xor rax,rax; push rbp; pop rbp; ret
    assert_eq!(Case { body: &body, ..Case::default() }.site(), Ok((3, EMULATED)));
    assert_eq!(Case { body: &body, other: Some(1), ..Case::default() }.site(), Ok((0, STEPPED)));
}

#[test]
fn what_programs_do_themselves_comes_after_what_is_emulated() {
    let site = |body| Case { body, steps: true, ..Case::default() }.site();
    let written = |offset, step| Ok((offset, SiteCost::BpfEmulated(step)));
    let frame = [0x48, 0x83, 0xec, 0x18]; // sub rsp,0x18
    let landing = [&ENDBR64[..], &frame].concat();
    let landing_push = [&ENDBR64[..], &TEST_PUSH].concat();
    let behind_test = [&[0x85, 0xff][..], &frame].concat(); // test edi,edi; sub rsp,0x18
    assert_eq!(site(&landing_push), Ok((7, EMULATED)));
    assert_eq!(site(&landing), written(0, Step::Landing));
    assert_eq!(site(&frame), written(0, Step::Frame { words: 3 }));
    assert_eq!(site(&behind_test), written(2, Step::Frame { words: 3 }));
    assert_eq!(site(&[0x31, 0xc0, 0xc3]), written(2, Step::Return)); // xor eax,eax; ret
}

#[test]
fn no_access_comes_before_a_site_where_they_count() {
    // mov rax,[rip+4096]; push rbx; ret, and mov rax,[rsp+16]; push rbx; ret
    let body = |load: &[u8]| [load, &[0x53, 0xc3]].concat();
    let (beside, stack) = (body(&[0x48, 0x8b, 0x05, 0, 0x10, 0, 0]), body(&[0x48, 0x8b, 0x44, 0x24, 0x10]));
    let site = |body, accesses| {
        let keeps = Intact { accesses, ..Intact::default() };
        Case { body, keeps, ..Case::default() }.site()
    };
    assert_eq!(site(&beside, false), Ok((7, EMULATED)));
    assert_eq!(site(&beside, true), Ok((0, STEPPED)));
    assert_eq!(site(&stack, true), Ok((5, EMULATED)));
}

#[test]
fn a_site_never_slides_over_what_overwrites_a_value() {
    let site = |before: &[u8], registers: &[usize], memory| {
        let mut keeps = Intact { memory, ..Intact::default() };
        registers.iter().for_each(|&register| keeps.registers[register] = 8);
        let body = [before, &[0x53, 0xc3]].concat(); // ...; push rbx; ret
        Case { body: &body, keeps, ..Case::default() }.site()
    };
    let (rdi, rsi) = (7, 6);
    let (slid, stays) = (Ok((3, EMULATED)), Ok((0, STEPPED)));
    let copied = [0x48, 0x89, 0xf7]; // mov rdi,rsi
    assert_eq!(site(&copied, &[rsi], true), slid);
    assert_eq!(site(&copied, &[rdi], false), stays);
    assert_eq!(site(&[0x40, 0xb7, 0x01], &[rdi], false), stays); // mov dil,1
    assert_eq!(site(&[0x0f, 0x45, 0xfe], &[rdi], false), stays); // cmovne edi,esi
    let stored = [0x48, 0x89, 0x35, 0, 0x10, 0, 0]; // mov [rip+4096],rsi
    assert_eq!(site(&stored, &[rdi, rsi], false), Ok((7, EMULATED)));
    assert_eq!(site(&stored, &[rdi], true), stays);
    assert_eq!(site(&[0x89, 0x74, 0x24, 0xf8], &[rdi], true), Ok((4, EMULATED))); // mov [rsp-8],esi
    assert_eq!(site(&[0x89, 0x74, 0x24, 0x08], &[rdi], true), stays); // mov [rsp+8],esi: an argument on the stack
    assert_eq!(site(&[0x89, 0x74, 0x24, 0x08], &[rdi], false), Ok((4, EMULATED)));
}

#[test]
fn a_site_slides_over_what_overwrites_a_value_that_was_copied() {
    let site = |before: &[u8], after: &[u8], bytes| {
        let mut keeps = Intact::default();
        keeps.registers[7] = bytes; // rdi
        let body = [before, &[0x31, 0xff], after].concat(); // ...; xor edi,edi; ...
        let site = Case { body: &body, keeps, ..Case::default() }.planned().unwrap();
        (site.file_offset - BASE, site.cost, site.registers.of(7))
    };
    let push = [0x53, 0xc3]; // push rbx; ret
    assert_eq!(site(&[0x48, 0x89, 0xfb], &push, 8), (5, EMULATED, 3)); // mov rbx,rdi
    assert_eq!(site(&[0x89, 0xfb], &push, 4), (4, EMULATED, 3)); // mov ebx,edi
    assert_eq!(site(&[0x89, 0xfb], &push, 8), (0, STEPPED, 7));
    assert_eq!(site(&[0x48, 0x89, 0xfb, 0x89, 0xc3], &push, 1), (0, STEPPED, 7)); // …; mov ebx,eax
    // What is single-stepped may get a stub, which has registers as they were: vxorps; mov rbx,rdi; …; inc eax
    let refused = [0xc5, 0xf8, 0x57, 0xc0];
    assert_eq!(site(&[&refused[..], &[0x48, 0x89, 0xfb]].concat(), &[0xff, 0xc0, 0xc3], 8), (4, STEPPED, 7));
}

#[test]
fn a_site_stays_where_a_stub_that_is_wanted_can_stand_for_it() {
    let site = |body: &[u8], wants_stub| {
        let mut keeps = Intact::default();
        keeps.registers[7] = 8; // rdi
        Case { body, keeps, wants_stub, ..Case::default() }.site()
    };
    // mov rbx,rdi; xor edi,edi; push rbx; ret
    let copied = [0x48, 0x89, 0xfb, 0x31, 0xff, 0x53, 0xc3];
    assert_eq!((site(&copied, false), site(&copied, true)), (Ok((5, EMULATED)), Ok((0, STEPPED))));
    // mov eax,1; mov rdx,[rip+256]; push rbx; ret
    let refers = [0xb8, 1, 0, 0, 0, 0x48, 0x8b, 0x15, 0, 1, 0, 0, 0x53, 0xc3];
    assert_eq!((site(&refers, false), site(&refers, true)), (Ok((12, EMULATED)), Ok((0, STEPPED))));
    // No stub could stand for the first instruction either.
    assert_eq!(site(&refers[5..], true), Ok((7, EMULATED)));
}

#[test]
fn the_frame_pointer_stays_where_contexts_are_recorded() {
    let body = [0x48, 0x89, 0xeb, 0x31, 0xed, 0x53, 0xc3]; // mov rbx,rbp; xor ebp,ebp; push rbx; ret
    let site = |frame| Case { body: &body, keeps: Intact { frame, ..Intact::default() }, ..Case::default() }.site();
    assert_eq!((site(false), site(true)), (Ok((5, EMULATED)), Ok((0, STEPPED))));
}

#[test]
fn a_site_slides_over_what_writes_a_register() {
    let site = |before: &[u8]| site(&[before, &[0x53, 0xc3]].concat()); // ...; push rbx; ret
    assert_eq!(site(&[0x89, 0xf8]), Ok((2, EMULATED))); // mov eax,edi
    assert_eq!(site(&[0x41, 0x89, 0xff]), Ok((3, EMULATED))); // mov r15d,edi
}
