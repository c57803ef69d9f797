//! What the kernel does with an instruction at which a probe sits.
//!
//! It emulates a few kinds, executes most others out of line by a single step, which costs several times as
//! much, and refuses some. Where it lets our programs write the registers, they do some that it would step.
//! One refused site fails a whole multi link, or silently never fires when the library is not mapped yet, so
//! a site is judged here before anything is attached. Where kernels
//! differ in what they emulate, [`Emulation`] knows; where they differ in what they refuse, the
//! answer is the stricter one.

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory,
};
use rtrace_model::Step;

use crate::obstacle::Obstacle;

/// What a probe on an instruction means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The kernel does the instruction's work itself.
    Emulated,
    /// Our program does its work.
    BpfEmulated(Step),
    /// The kernel executes a copy of the instruction in a single step.
    SingleStep,
    /// The kernel refuses the probe, or the probe would harm the program.
    Refused(Obstacle),
}

/// What a hit of a site costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteCost {
    /// The kernel emulates the instruction: cheap.
    Emulated,
    /// Our program does the instruction: nearly as cheap.
    BpfEmulated(Step),
    /// The kernel executes it in a single step: costly.
    SingleStep,
}

/// Bytes of the nops that kernels from 6.18 on replace by a call. Until they spare the 128 bytes below the
/// stack pointer (2026), the call overwrites what a leaf function keeps there, and forked children die of it.
const OPTIMISED: usize = 5;

/// The first kernel that emulates nops of more than two bytes.
const LONG_NOPS_SINCE: (u32, u32) = (6, 18);

/// What is done without a single step beyond that which all kernels emulate: pushes of a register,
/// direct jumps and calls, and nops of one or two bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emulation {
    /// Nops of three, four, six, seven and eight bytes.
    pub long_nops: bool,
    /// What our programs [do](Step), because they may write the registers.
    pub steps: bool,
}

/// The nops that the kernel knows by their bytes, but for the one of five bytes.
const NOPS: [&[u8]; 7] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

impl Emulation {
    /// What the kernel of this release (`6.18.2-rc1`) emulates.
    ///
    /// For where the kernel cannot be asked, by probing such a nop and measuring; told wrongly, a call
    /// costs more than foreseen and nothing else.
    pub fn of_release(release: &str) -> Emulation {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
        let version = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (0, 0),
        };
        Emulation { long_nops: version >= LONG_NOPS_SINCE, steps: false }
    }

    /// How the kernel handles a probe on the instruction of exactly these bytes.
    pub fn handling(self, bytes: &[u8]) -> Handling {
        if bytes.len() == OPTIMISED && is_nop(bytes) {
            return Handling::Refused(Obstacle::ReplacedNop);
        }
        if NOPS.contains(&bytes) {
            return if bytes.len() <= 2 || self.long_nops { Handling::Emulated } else { Handling::SingleStep };
        }
        if let Some(step) = step(bytes).filter(|_| self.steps) {
            return Handling::BpfEmulated(step);
        }
        let Ok((prefixes, opcode)) = split_prefixes(bytes) else {
            return Handling::Refused(Obstacle::Prefix);
        };
        match *opcode {
            [0xc4 | 0xc5 | 0x62, ..] => Handling::Refused(Obstacle::Avx),
            [0x8f, modrm, ..] if modrm & 0x38 != 0 => Handling::Refused(Obstacle::Xop),
            [0x90, ..] if prefixes.rex & 1 != 0 => Handling::Refused(Obstacle::Exchange),
            [0x90, ..] => Handling::Emulated,
            [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] if prefixes.operand_size => {
                Handling::Refused(Obstacle::ShortBranch)
            }
            [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => Handling::Emulated,
            [0x50..=0x57] if bytes.len() == 1 || bytes[0] == 0x41 && bytes.len() == 2 => Handling::Emulated,
            [0x9c, ..] => Handling::Refused(Obstacle::Flags),
            // It puts off the trap of a single step until after the instruction behind the copy.
            [0x8e, modrm, ..] if modrm & 0x38 == 0x10 => Handling::Refused(Obstacle::System),
            [0x0f, 0x01 | 0x05..=0x09 | 0x0b | 0x30 | 0x34 | 0x35 | 0x37 | 0xaa | 0xb2 | 0xff, ..] => {
                Handling::Refused(Obstacle::System)
            }
            [first, ..] if !steps(first) => Handling::Refused(Obstacle::Kernel),
            [] => Handling::Refused(Obstacle::NoInstruction),
            _ => Handling::SingleStep,
        }
    }
}

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;

/// How many bytes the first of these instructions has; at least one.
pub fn length(code: &[u8]) -> usize {
    Decoder::new(64, code, DecoderOptions::NONE).decode().len().max(1)
}

/// Whether the instruction does nothing, by any of the encodings that the kernel knows.
fn is_nop(bytes: &[u8]) -> bool {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    match instruction.mnemonic() {
        Mnemonic::Nop => true,
        Mnemonic::Mov | Mnemonic::Xchg => {
            instruction.op1_kind() == OpKind::Register && instruction.op0_register() == instruction.op1_register()
        }
        Mnemonic::Lea => {
            instruction.op0_register().full_register() == instruction.memory_base().full_register()
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() == 0
        }
        _ => false,
    }
}

/// How our programs do the instruction of exactly these bytes, if they can.
fn step(bytes: &[u8]) -> Option<Step> {
    match *bytes {
        [0xf3, 0x0f, 0x1e, 0xfa] => Some(Step::Landing),
        [0xc3] | [0xf3, 0xc3] => Some(Step::Return),
        [0x48, 0x83, 0xec, size @ 1..0x80] => frame(u32::from(size)),
        [0x48, 0x81, 0xec, a, b, c, d] => frame(u32::from_le_bytes([a, b, c, d])).filter(|_| a >= 0x80 || b > 0),
        _ => None,
    }
}

/// A frame of so many bytes: words, and not too many.
fn frame(bytes: u32) -> Option<Step> {
    let words = u8::try_from(bytes / 8).ok().filter(|_| bytes.is_multiple_of(8))?;
    Some(Step::Frame { words })
}

/// Prefixes that change what the kernel does.
struct Prefixes {
    operand_size: bool,
    /// The REX byte, or 0.
    rex: u8,
}

/// Parts legacy and REX prefixes from the opcode; the error is a prefix that the kernel refuses.
fn split_prefixes(bytes: &[u8]) -> Result<(Prefixes, &[u8]), ()> {
    let mut prefixes = Prefixes { operand_size: false, rex: 0 };
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        match first {
            0xf0 | 0x26 | 0x2e | 0x36 | 0x3e => return Err(()),
            0x66 => prefixes.operand_size = true,
            0x64 | 0x65 | 0x67 | 0xf2 | 0xf3 => {}
            0x40..=0x4f => {
                prefixes.rex = *first;
                return Ok((prefixes, tail));
            }
            _ => break,
        }
        rest = tail;
    }
    Ok((prefixes, rest))
}

/// Whether the kernel steps one-byte opcodes that begin so: not those that are invalid in 64-bit
/// mode, privileged, or interrupts.
fn steps(opcode: u8) -> bool {
    !matches!(
        opcode,
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60..=0x62
            | 0x6c..=0x6f | 0x82 | 0x9a | 0xcc..=0xcf | 0xd4..=0xd6 | 0xe4..=0xe7 | 0xea
            | 0xec..=0xef | 0xf1 | 0xf4 | 0xfa | 0xfb
    )
}

/// Whether an instruction accesses memory by another pointer than the stack pointer.
pub(crate) fn accesses_beside_stack(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let mut used = info.info(instruction).used_memory().iter();
    used.any(|memory| memory.base().full_register() != Register::RSP)
}

/// Whether an instruction may raise a signal, or take long, for what the program made of its operands and of memory.
///
/// Memory of the stack, the thread's own and the variables of the file do neither, but for a page that is touched first.
pub(crate) fn may_fault(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let stops = [Mnemonic::Div, Mnemonic::Idiv, Mnemonic::Cpuid, Mnemonic::Rdrand, Mnemonic::Rdseed];
    let is_x87 = || {
        instruction.cpuid_features().iter().any(|feature| {
            matches!(feature, CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387 | CpuidFeature::MMX)
        })
    };
    if stops.contains(&instruction.mnemonic()) || is_x87() {
        return true;
    }
    let is_own = |memory: &UsedMemory| match memory.base() {
        _ if memory.index() != Register::None => false,
        Register::RSP => true,
        // A local variable of a function with a frame pointer.
        Register::RBP => (memory.displacement() as i64) < 0,
        Register::None => memory.segment() == Register::FS || instruction.is_ip_rel_memory_operand(),
        _ => false,
    };
    !info.info(instruction).used_memory().iter().all(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handling(bytes: &[u8]) -> Handling {
        Emulation { long_nops: true, steps: false }.handling(bytes)
    }

    #[test]
    fn kernels_differ_in_long_nops() {
        for (release, long_nops) in [
            ("6.18.44", true),
            ("7.0.0-rc1", true),
            ("6.12.9-amd64", false),
            ("5.10", false),
            ("", false),
            ("x.y", false),
        ] {
            assert_eq!(Emulation::of_release(release), Emulation { long_nops, steps: false }, "{release}");
        }
        let short = Emulation::default();
        assert_eq!(short.handling(&[0x0f, 0x1f, 0x40, 0x00]), Handling::SingleStep);
        assert_eq!(short.handling(&[0x66, 0x90]), Handling::Emulated);
        assert_eq!(short.handling(&[0x55]), Handling::Emulated);
    }

    #[test]
    fn emulates_what_the_kernel_emulates() {
        let emulated: [&[u8]; 10] = [
            &[0x55],                            // push rbp
            &[0x41, 0x57],                      // push r15
            &[0xf3, 0x90],                      // pause
            &[0xe8, 0, 0, 0, 0],                // call
            &[0xeb, 0],                         // jmp
            &[0xf2, 0xe9, 0, 0, 0, 0],          // bnd jmp
            &[0x74, 0],                         // je
            &[0x0f, 0x8f, 0, 0, 0, 0],          // jg
            &[0x0f, 0x1f, 0x40, 0x00],          // nop4
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // nop8
        ];
        for bytes in emulated {
            assert_eq!(handling(bytes), Handling::Emulated, "{bytes:x?}");
        }
    }

    #[test]
    fn steps_what_the_kernel_steps() {
        let stepped: [&[u8]; 10] = [
            &[0xf3, 0x0f, 0x1e, 0xfa],                      // endbr64
            &[0xc3],                                        // ret
            &[0xf3, 0xc3],                                  // rep ret
            &[0x6a, 0x01],                                  // push 1
            &[0x66, 0x50],                                  // push ax
            &[0x48, 0x50],                                  // push rax with a needless REX.W
            &[0x48, 0x83, 0xec, 0x08],                      // sub rsp, 8
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov rax, fs:0x28
            &[0xff, 0x25, 0, 0, 0, 0],                      // jmp [rip]
            &[0x66, 0x0f, 0x38, 0x00, 0xc1],                // pshufb
        ];
        for bytes in stepped {
            assert_eq!(handling(bytes), Handling::SingleStep, "{bytes:x?}");
        }
    }

    #[test]
    fn programs_do_what_they_can_do_exactly() {
        let able = Emulation { long_nops: true, steps: true };
        let done: [(&[u8], Step); 8] = [
            (&[0xf3, 0x0f, 0x1e, 0xfa], Step::Landing),
            (&[0xc3], Step::Return),
            (&[0xf3, 0xc3], Step::Return),
            (&[0x48, 0x83, 0xec, 0x08], Step::Frame { words: 1 }),
            (&[0x48, 0x83, 0xec, 0x78], Step::Frame { words: 15 }),
            (&[0x48, 0x81, 0xec, 0x80, 0, 0, 0], Step::Frame { words: 16 }),
            (&[0x48, 0x81, 0xec, 0x00, 0x01, 0, 0], Step::Frame { words: 32 }),
            (&[0x48, 0x81, 0xec, 0xf8, 0x07, 0, 0], Step::Frame { words: 255 }),
        ];
        for (bytes, step) in done {
            assert_eq!(able.handling(bytes), Handling::BpfEmulated(step), "{bytes:x?}");
            assert_eq!(handling(bytes), Handling::SingleStep, "{bytes:x?}");
        }
        let left: [&[u8]; 9] = [
            &[0xc2, 0x08, 0x00],                         // ret 8
            &[0x66, 0xc3],                               // a return of 16 bits
            &[0x48, 0x83, 0xec, 0x80],                   // sub rsp, -128
            &[0x48, 0x83, 0xec, 0x04],                   // not words
            &[0x48, 0x81, 0xec, 0x08, 0, 0, 0],          // not its shortest form
            &[0x48, 0x81, 0xec, 0x00, 0x08, 0, 0],       // 256 words
            &[0x48, 0x81, 0xec, 0x08, 0, 0x01, 0],       // more
            &[0x48, 0x81, 0xec, 0x00, 0xff, 0xff, 0xff], // less than nothing
            &[0x83, 0xec, 0x08],                         // sub esp, 8
        ];
        for bytes in left {
            assert_eq!(able.handling(bytes), Handling::SingleStep, "{bytes:x?}");
        }
        assert_eq!(able.handling(&[0x55]), Handling::Emulated);
    }

    #[test]
    fn what_may_fault_is_known() {
        let may_fault = |bytes: &[u8]| {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            may_fault(&mut InstructionInfoFactory::new(), &instruction)
        };
        let faulting: [&[u8]; 7] = [
            &[0x48, 0x8b, 0x07],             // mov rax,[rdi]
            &[0x89, 0x45, 0x04],             // mov [rbp+4],eax
            &[0x48, 0x8b, 0x04, 0xc4],       // mov rax,[rsp+rax*8]
            &[0xf7, 0xf7],                   // div edi
            &[0x0f, 0xa2],                   // cpuid
            &[0xd9, 0xe8],                   // fld1
            &[0x64, 0x48, 0x8b, 0x04, 0x07], // mov rax,fs:[rdi+rax]
        ];
        for bytes in faulting {
            assert!(may_fault(bytes), "{bytes:x?}");
        }
        let others: [&[u8]; 7] = [
            &[0x53],                                        // push rbx
            &[0x48, 0x8b, 0x44, 0x24, 0x08],                // mov rax,[rsp+8]
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov rax,fs:0x28
            &[0x48, 0x8d, 0x07],                            // lea rax,[rdi]
            &[0x0f, 0xaf, 0xc7],                            // imul eax,edi
            &[0x89, 0x45, 0xfc],                            // mov [rbp-4],eax
            &[0x8b, 0x05, 0, 0, 0, 0],                      // mov eax,[rip]
        ];
        for bytes in others {
            assert!(!may_fault(bytes), "{bytes:x?}");
        }
    }

    #[test]
    fn refuses_what_the_kernel_refuses() {
        let refused: [&[u8]; 19] = [
            &[0xf0, 0x0f, 0xb1, 0x0f],                      // lock cmpxchg
            &[0x3e, 0xff, 0xe0],                            // notrack jmp rax
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // nop10
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],                // nop5
            &[0x0f, 0x1f, 0x44, 0x20, 0x08],                // another
            &[0x66, 0x66, 0x66, 0x66, 0x90],                // another
            &[0x48, 0x8d, 0x64, 0x24, 0x00],                // lea rsp, [rsp+0]
            &[0xc5, 0xf8, 0x77],                            // vzeroupper
            &[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc0],          // EVEX vmovaps
            &[0x0f, 0x05],                                  // syscall
            &[0x0f, 0x0b],                                  // ud2
            &[0xcc],                                        // int3
            &[0xf4],                                        // hlt
            &[0x9c],                                        // pushfq
            &[0x66, 0x9c],                                  // pushfw
            &[0x8e, 0xd0],                                  // mov ss, eax
            &[0x0f, 0xb2, 0x24, 0x24],                      // lss esp, [rsp]
            &[0x49, 0x90],                                  // xchg r8, rax
            &[0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0],          // data16 call
        ];
        for bytes in refused {
            assert!(matches!(handling(bytes), Handling::Refused(_)), "{bytes:x?}");
        }
        assert!(matches!(handling(&[]), Handling::Refused(_)));
        assert!(matches!(handling(&[0x66]), Handling::Refused(_)));
    }
}
