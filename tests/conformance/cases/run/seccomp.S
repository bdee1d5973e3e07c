# What /sc is in the cases beside this, for x86_64 (as --64; ld -n -s -N) and, below it, for i386 (as --32; ld -m elf_i386 -s -N).
# sc NUMBER [ARGUMENT...]: makes a system call with hexadecimal arguments; its exit status is the errno, or 0.
.globl _start
_start:
    mov (%rsp),%r15
    lea 16(%rsp),%r14
    dec %r15
    lea args(%rip),%r13
1:  test %r15,%r15
    jz 5f
    mov (%r14),%rsi
    add $8,%r14
    dec %r15
    xor %ebx,%ebx
2:  movzbl (%rsi),%eax
    test %al,%al
    jz 4f
    inc %rsi
    cmp $'9',%al
    jbe 3f
    sub $39,%al
3:  sub $'0',%al
    shl $4,%rbx
    or %rax,%rbx
    jmp 2b
4:  mov %rbx,(%r13)
    add $8,%r13
    jmp 1b
5:  lea args(%rip),%r13
    mov (%r13),%rax
    mov 8(%r13),%rdi
    mov 16(%r13),%rsi
    mov 24(%r13),%rdx
    mov 32(%r13),%r10
    mov 40(%r13),%r8
    mov 48(%r13),%r9
    syscall
    xor %edi,%edi
    cmp $-4096,%rax
    jbe 6f
    neg %eax
    mov %eax,%edi
6:  mov $231,%eax
    syscall
.lcomm args,64

# i386
.globl _start
_start:
    mov (%esp),%ebp
    lea 8(%esp),%edi
    dec %ebp
    mov $args,%edx
1:  test %ebp,%ebp
    jz 5f
    mov (%edi),%esi
    add $4,%edi
    dec %ebp
    xor %ebx,%ebx
2:  movzbl (%esi),%eax
    test %al,%al
    jz 4f
    inc %esi
    cmp $'9',%al
    jbe 3f
    sub $39,%al
3:  sub $'0',%al
    shl $4,%ebx
    or %eax,%ebx
    jmp 2b
4:  mov %ebx,(%edx)
    add $4,%edx
    jmp 1b
5:  mov $args,%edx
    mov (%edx),%eax
    mov 4(%edx),%ebx
    mov 8(%edx),%ecx
    mov 16(%edx),%esi
    mov 20(%edx),%edi
    mov 12(%edx),%edx
    xor %ebp,%ebp
    int $0x80
    xor %ebx,%ebx
    cmp $-4096,%eax
    jbe 6f
    neg %eax
    mov %eax,%ebx
6:  mov $252,%eax
    int $0x80
.lcomm args,64
