! SPDX-License-Identifier: Apache-2.0 OR MIT
! As values.c, of Fortran: values by reference, hidden lengths of texts, descriptors of arrays, hidden results. A column
! whose name begins with `?` may be left out where the debug information says too little.
#ifdef LIBRARY
module kinds
  use iso_c_binding
  implicit none
  type, bind(c) :: pair
    integer(c_int) :: a
    integer(c_long) :: b
  end type
  ! The array ends where the numbers begin.
  type, bind(c) :: triple
    integer(c_int) :: a(2)
    real(c_float) :: x, y
  end type
  type :: object
    integer :: a
    real(8) :: x(10)
  end type
contains
  subroutine integers(i1, i2, i4, i8, l4, l1)
    integer(1), intent(in) :: i1
    integer(2), intent(in) :: i2
    integer(4), intent(in) :: i4
    integer(8), intent(inout) :: i8
    logical, intent(in) :: l4
    logical(1), intent(in) :: l1
    i8 = i8 + i1 + i2 + i4
    if (l4 .or. l1) i8 = i8 + 1
  end subroutine
  integer function by_value(n, k) result(r)
    integer, value :: n
    integer(8), value :: k
    r = n * 2 + int(k)
  end function
  integer(8) function pointers(p, q) result(r)
    integer, pointer :: p
    integer, allocatable :: q
    r = p + q
  end function
  integer function texts(a, n, b) result(r)
    character(len=*), intent(in) :: a, b
    integer, intent(in) :: n
    r = len(a) * 100 + len(b) * 10 + n
  end function
  integer function fixed_text(a, n) result(r)
    character(len=5), intent(in) :: a
    integer, intent(in) :: n
    r = ichar(a(1:1)) + n
  end function
  function text_result(n) result(s)
    integer, intent(in) :: n
    character(len=8) :: s
    write(s, '(i8)') n
  end function
  function array_result(n) result(a)
    integer, intent(in) :: n
    integer :: a(n)
    a = n
  end function
  integer function assumed_shape(a, n) result(r)
    integer, intent(in) :: a(:), n
    r = sum(a) + n
  end function
  integer function explicit_shape(a, n) result(r)
    integer, intent(in) :: n, a(n)
    r = sum(a) + n
  end function
  integer function maybe(n, k) result(r)
    integer, intent(in) :: n
    integer, intent(in), optional :: k
    r = n
    if (present(k)) r = r + k
  end function
  integer function by_pair(p, n) bind(c, name="by_pair")
    type(pair), value :: p
    integer(c_int), value :: n
    by_pair = p%a + int(p%b) + n
  end function
  integer function by_triple(p, n) bind(c, name="by_triple")
    type(triple), value :: p
    integer(c_int), value :: n
    by_triple = p%a(1) + p%a(2) + int(p%x) + int(p%y) + n
  end function
  integer function by_object(o, n) result(r)
    type(object), intent(in) :: o
    integer, intent(in) :: n
    r = o%a + n
  end function
  complex(8) function complex_result(z, n)
    complex(8), intent(in) :: z
    integer, intent(in) :: n
    complex_result = z * n
  end function
  logical function is_odd(n)
    integer, intent(in) :: n
    is_odd = mod(n, 2) == 1
  end function
  integer(2) function short_result(n)
    integer, intent(in) :: n
    short_result = int(-n, 2)
  end function
  real(8) function real_result(n, x)
    integer, intent(in) :: n
    real(8), intent(in) :: x
    real_result = x * n
  end function
  integer function with_procedure(f, n) result(r)
    interface
      integer function f(k)
        integer, intent(in) :: k
      end function
    end interface
    integer, intent(in) :: n
    r = f(n)
  end function
  integer function plus_one(k)
    integer, intent(in) :: k
    plus_one = k + 1
  end function
end module
integer function external_one(n, x, name)
  integer :: n
  real(8) :: x
  character(len=*) :: name
  external_one = n + len(name) + int(x)
end function
integer function assumed_size(n, a)
  integer :: n, a(*)
  assumed_size = n + a(1)
end function
#else
program values
  use kinds
  implicit none
  integer, parameter :: long = 8
  integer, external :: external_one, assumed_size
  integer, target :: target_value
  integer, pointer :: p
  integer, allocatable :: q
  integer :: n, a(4)
  integer(long) :: i8, was
  type(object) :: o
  complex(8) :: z
  character(len=8) :: s
  real(8) :: x
  do n = 1, 16
    i8 = n * 3000000000_long
    was = i8
    call integers(int(-n, 1), int(n * 100, 2), n - 7, i8, mod(n, 2) == 0, logical(mod(n, 2) == 1, 1))
    call tell('kinds::integers', 'i1 i2 i4 i8 l4 l1', &
      [int(-n, long), n * 100_long, n - 7_long, was, 1_long - mod(n, 2), mod(n, 2) + 0_long])
    call tell('kinds::by_value', 'n k result', [n + 0_long, -5_long * n, by_value(n, -5_long * n) + 0_long])
    target_value = n * 11
    p => target_value
    if (.not. allocated(q)) allocate(q)
    q = n + 2
    call tell('kinds::pointers', 'p q result', [loc(target_value), loc(q), pointers(p, q)])
    call tell('kinds::texts', 'a n b _a _b result', &
      [0_long, n + 0_long, 0_long, 5_long, n + 0_long, texts('hello', n, repeat('x', n)) + 0_long], '* *')
    call tell('kinds::fixed_text', 'a n _a result', [0_long, n + 0_long, 5_long, fixed_text('ABCDE', n) + 0_long], '*')
    s = text_result(n)
    call tell('kinds::text_result', '__result .__result n', [0_long, 8_long, n + 0_long], '*')
    a = array_result(4)
    call tell('kinds::array_result', '__result n', [0_long, 4_long], '*')
    call tell('kinds::assumed_shape', 'a n result', [0_long, n + 0_long, assumed_shape(a, n) + 0_long], '*')
    call tell('kinds::explicit_shape', 'a n result', [loc(a), 3_long, explicit_shape(a, 3) + 0_long])
    call tell('kinds::maybe', 'n k result', [n + 0_long, 0_long, maybe(n) + 0_long], '-')
    call tell('kinds::maybe', 'n k result', [n + 0_long, -n + 0_long, maybe(n, -n) + 0_long])
    call tell('by_pair', '?p_a ?p_b ?n result', &
      [n + 0_long, 10_long * n, n + 1_long, by_pair(pair(n, 10_long * n), n + 1) + 0_long])
    call tell('by_triple', 'n result', [n + 1_long, by_triple(triple([n, n], 2.0, 3.0), n + 1) + 0_long])
    o%a = n
    call tell('kinds::by_object', 'o n result', [loc(o), n + 0_long, by_object(o, n) + 0_long])
    z = complex_result((1d0, 2d0), n)
    call tell('kinds::complex_result', 'z n', [0_long, n + 0_long], '*')
    call tell('kinds::is_odd', 'n result', [n + 0_long, merge(1_long, 0_long, is_odd(n))])
    call tell('kinds::short_result', 'n result', [n + 0_long, short_result(n) + 0_long])
    x = real_result(n, 2d0)
    if (x /= 2 * n .or. z /= (1, 2) * n .or. s == 'none') stop 1
    call tell('kinds::real_result', 'n x', [n + 0_long, 2_long])
    call tell('kinds::with_procedure', 'f n result', [loc(plus_one), n + 0_long, with_procedure(plus_one, n) + 0_long])
    call tell('kinds::plus_one', 'k result', [n + 0_long, n + 1_long])
    call tell('external_one_', 'n x name _name result', &
      [n + 0_long, 2_long, 0_long, 3_long, external_one(n, 2d0, 'abc') + 0_long], '*')
    call tell('assumed_size_', 'n a result', [n + 0_long, 0_long, assumed_size(n, [n * 9]) + 0_long], '*')
  end do
contains
  ! Where a value is 0, one of `instead` may stand for it.
  subroutine tell(name, columns, numbers, instead)
    character(len=*), intent(in) :: name, columns
    integer(long), intent(in) :: numbers(:)
    character(len=*), intent(in), optional :: instead
    character(len=24) :: text
    integer :: i, begin, blank, told
    begin = 1
    told = 1
    write(*, '(a)', advance='no') name
    do i = 1, size(numbers)
      blank = index(columns(begin:)//' ', ' ')
      write(text, '(i0)') numbers(i)
      if (present(instead) .and. numbers(i) == 0) then
        if (told <= len(instead)) text = instead(told:told)
        told = told + 2
      end if
      write(*, '(4a)', advance='no') char(9), columns(begin:begin + blank - 2), '=', trim(text)
      begin = begin + blank
    end do
    write(*, *)
  end subroutine
end program
#endif
