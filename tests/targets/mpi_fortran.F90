! SPDX-License-Identifier: Apache-2.0 OR MIT
! Messages of MPI in Fortran that log themselves, in the lines of mpi_messages.c: with mpif.h, or with the module mpi
! (-DMODULE) or mpi_f08 (-DF08). Usage: mpi_fortran FOLDER [derived]. It starts when there is a file FOLDER/go.
#ifdef F08
#define COMMUNICATOR type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define STATUS type(MPI_Status)
#define STATUSES(n) type(MPI_Status), dimension(n)
#define DATATYPE type(MPI_Datatype)
#define WINDOW type(MPI_Win)
#define SOURCE_OF(status) status%MPI_SOURCE
#define TAG_OF(status) status%MPI_TAG
#define EACH(statuses, i) statuses(i)
#define USE_MPI use mpi_f08
#define MPI_DECLARATIONS
#else
#define COMMUNICATOR integer
#define REQUEST integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define STATUSES(n) integer, dimension(MPI_STATUS_SIZE, n)
#define DATATYPE integer
#define WINDOW integer
#define SOURCE_OF(status) status(MPI_SOURCE)
#define TAG_OF(status) status(MPI_TAG)
#define EACH(statuses, i) statuses(:, i)
#ifdef MODULE
#define USE_MPI use mpi
#define MPI_DECLARATIONS
#else
#define USE_MPI
#define MPI_DECLARATIONS include 'mpif.h'
#endif
#endif

module program_log
  implicit none
  integer :: rank = -1, ranks = 0, sent = 0, posted = 0, out = 10
contains
  subroutine log_send(buffer, to, tag, bytes, label)
    integer, intent(inout) :: buffer(*)
    integer, intent(in) :: to, tag, bytes
    character(*), intent(in) :: label
    sent = sent + 1
    if (bytes >= 8) buffer(1:2) = [rank, sent]
    write (out, '(a,4(1x,i0),1x,a)') 'S', sent, to, tag, bytes, label
  end subroutine

  subroutine log_recv(number, buffer, source, tag, bytes, label)
    integer, intent(in) :: number, buffer(*), source, tag, bytes
    character(*), intent(in) :: label
    if (bytes >= 8) then
      write (out, '(a,4(1x,i0),1x,a,2(1x,i0))') 'R', number, source, tag, bytes, label, buffer(1:2)
    else
      write (out, '(a,4(1x,i0),1x,a,2(1x,i0))') 'R', number, source, tag, bytes, label, -1, -1
    end if
  end subroutine

  integer function next_posted()
    posted = posted + 1
    next_posted = posted
  end function

  subroutine log_collective(event, root, given, gotten)
    character(*), intent(in) :: event
    integer, intent(in) :: root, given, gotten
    write (out, '(a,1x,a,1x,a,3(1x,i0))') 'C', event, 'world', root, given, gotten
  end subroutine
end module

program mpi_fortran
  USE_MPI
  use program_log
  implicit none
  MPI_DECLARATIONS
  COMMUNICATOR :: world, half
  integer :: error, i
  character(4000) :: folder, log
  integer :: a(256) = 0, b(256) = 0, c(256, 4) = 0, d(256, 4) = 0
  integer(kind=8) :: memory(256) = 0

  world = MPI_COMM_WORLD
  call MPI_Init(error)
  call MPI_Comm_rank(world, rank, error)
  call MPI_Comm_size(world, ranks, error)
  call get_command_argument(1, folder)
  write (log, '(a,a,i0)') trim(folder), '/log.', rank
  open (out, file=log)
  write (out, '(a,4(i0,:,","))') 'G world ', [(i, i=0, ranks - 1)]
  call warm_up()
  call blocking()
  call nonblocking()
  if (command_argument_count() > 1) call derived()
  call communicators()
  call collectives()
  call accesses()
  close (out)
  call MPI_Finalize(error)

contains
  ! Calls what is used where nothing is sent, until what traces it knows where each call returns.
  subroutine warm_up()
    REQUEST :: requests(2)
    STATUS :: status
    STATUSES(2) :: statuses
    WINDOW :: window
    COMMUNICATOR :: copy
    integer :: place
    logical :: flag, may_go
    write (out, '(a,i0,1x,i0)') 'G self', rank, rank
    ! Open MPI makes no window of a single rank.
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, error)
    may_go = .false.
    do while (.not. may_go)
      call MPI_Send(a, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, error)
      call MPI_Recv(b, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, status, error)
      call MPI_Sendrecv(a, 0, MPI_INTEGER, MPI_PROC_NULL, 0, b, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, status, error)
      call MPI_Irecv(b, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, requests(1), error)
      call MPI_Isend(a, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, requests(2), error)
      call MPI_Waitall(2, requests, statuses, error)
      call MPI_Waitany(2, requests, place, status, error)
      call MPI_Testall(2, requests, flag, statuses, error)
      call MPI_Irecv(b, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, requests(1), error)
      call MPI_Wait(requests(1), status, error)
      write (out, '(a,i0,a)') 'C allreduce self', rank, ' -1 4 4'
      call MPI_Iallreduce(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_SELF, requests(1), error)
      call MPI_Wait(requests(1), status, error)
      call MPI_Comm_split(MPI_COMM_SELF, 0, 0, copy, error)
      call MPI_Comm_free(copy, error)
      call MPI_Win_create(memory, int(2048, MPI_ADDRESS_KIND), 8, MPI_INFO_NULL, MPI_COMM_SELF, window, error)
      if (error == MPI_SUCCESS) call MPI_Win_free(window, error)
      call sleep_a_little()
      inquire (file=trim(folder)//'/go', exist=may_go)
    end do
  end subroutine

  subroutine sleep_a_little()
    interface
      integer(c_int) function usleep(time) bind(c)
        use iso_c_binding
        integer(c_int), value :: time
      end function
    end interface
    error = usleep(40000)
  end subroutine

  subroutine received(number, buffer, of, label)
    integer, intent(in) :: number, buffer(*)
    STATUS, intent(in) :: of
    character(*), intent(in) :: label
    integer :: bytes, from
    call MPI_Get_count(of, MPI_BYTE, bytes, error)
    from = SOURCE_OF(of)
    ! The halves have every other rank.
    if (label /= 'world') from = 2*from + mod(rank, 2)
    call log_recv(number, buffer, from, TAG_OF(of), bytes, label)
  end subroutine

  subroutine blocking()
    STATUS :: status
    integer :: from, to, number, n
    do n = 0, 19
      do from = 0, ranks - 1
        if (from == rank) then
          do to = 0, ranks - 1
            if (to == rank) cycle
            call log_send(a, to, 7 + mod(n, 3), 20*n, 'world')
            call MPI_Send(a, 5*n, MPI_INTEGER, to, 7 + mod(n, 3), world, error)
          end do
        else
          number = next_posted()
          call MPI_Recv(b, 256, MPI_INTEGER, from, 7 + mod(n, 3), world, status, error)
          call received(number, b, status, 'world')
        end if
      end do
    end do
  end subroutine

  ! Requests that are waited for in several ways.
  subroutine nonblocking()
    REQUEST :: requests(4)
    STATUS :: status
    STATUSES(4) :: statuses
    integer :: n, k, to, from, numbers(2), place, done
    logical :: flag, is_open(4)
    do n = 1, 12
      do k = 1, 2
        from = mod(rank + ranks - k, ranks)
        numbers(k) = next_posted()
        call MPI_Irecv(c(:, k), 256, MPI_INTEGER, from, MPI_ANY_TAG, world, requests(k), error)
      end do
      do k = 1, 2
        to = mod(rank + k, ranks)
        call log_send(d(:, k), to, 100 + n, 4*(n + k + 2), 'world')
        call MPI_Isend(d(:, k), n + k + 2, MPI_INTEGER, to, 100 + n, world, requests(2 + k), error)
      end do
      select case (mod(n, 4))
      case (0)
        call MPI_Waitall(4, requests, statuses, error)
      case (1)
        ! The module of MPICH 4.0 counts places from 0, so who has ended is seen by the requests.
        is_open = .true.
        do done = 1, 4
          call MPI_Waitany(4, requests, place, status, error)
          do k = 1, 4
            if (.not. is_open(k) .or. requests(k) /= MPI_REQUEST_NULL) cycle
            is_open(k) = .false.
            if (k <= 2) call received(numbers(k), c(:, k), status, 'world')
          end do
        end do
      case (2)
        flag = .false.
        do while (.not. flag)
          call MPI_Testall(4, requests, flag, statuses, error)
        end do
      case default
        do k = 1, 4
          call MPI_Wait(requests(k), status, error)
          if (k <= 2) call received(numbers(k), c(:, k), status, 'world')
        end do
      end select
      if (mod(n, 2) == 0) then
        do k = 1, 2
          call received(numbers(k), c(:, k), EACH(statuses, k), 'world')
        end do
      end if
    end do
  end subroutine

  subroutine derived()
    DATATYPE :: column
    STATUS :: status
    integer :: to, from, number, n
    to = mod(rank + 1, ranks)
    from = mod(rank + ranks - 1, ranks)
    call MPI_Type_vector(8, 2, 8, MPI_INTEGER, column, error)
    call MPI_Type_commit(column, error)
    do n = 1, 4
      number = next_posted()
      call log_send(a, to, 3, 64, 'world')
      call MPI_Sendrecv(a, 1, column, to, 3, b, 256, MPI_INTEGER, from, 3, world, status, error)
      call received(number, b, status, 'world')
    end do
    call MPI_Type_free(column, error)
  end subroutine

  subroutine communicators()
    STATUS :: status
    character(4) :: label
    integer :: own, number, n
    call MPI_Comm_split(world, mod(rank, 2), rank, half, error)
    call MPI_Comm_rank(half, own, error)
    label = merge('even', 'odd ', mod(rank, 2) == 0)
    if (mod(rank, 2) == 0) write (out, '(a)') 'G even 0,2'
    if (mod(rank, 2) == 1) write (out, '(a)') 'G odd 1,3'
    do n = 1, 10
      number = next_posted()
      call log_send(a, mod(rank + 2, 4), n, 4*(n + 2), trim(label))
      call MPI_Sendrecv(a, n + 2, MPI_INTEGER, 1 - own, n, b, 256, MPI_INTEGER, 1 - own, n, half, status, error)
      call received(number, b, status, trim(label))
    end do
  end subroutine

  subroutine collectives()
    REQUEST :: request
    STATUS :: status
    integer :: root, bytes
    do root = 0, ranks - 1
      call log_collective('barrier', -1, 0, 0)
      call MPI_Barrier(world, error)
      bytes = 8*(5 + root)
      call log_collective('broadcast', root, merge(bytes*ranks, 0, rank == root), bytes)
      call MPI_Bcast(memory, 5 + root, MPI_INTEGER8, root, world, error)
      call log_collective('allreduce', -1, 32*ranks, 32*ranks)
      call MPI_Iallreduce(a, b, 8, MPI_INTEGER, MPI_SUM, world, request, error)
      call MPI_Wait(request, status, error)
      call log_collective('reduce', root, 28, merge(28*ranks, 0, rank == root))
      call MPI_Reduce(a, b, 7, MPI_INTEGER, MPI_SUM, root, world, error)
      call log_collective('gather', root, merge(0, 16, rank == root), merge(16*(ranks - 1), 0, rank == root))
      if (rank == root) then
        call MPI_Gather(MPI_IN_PLACE, 0, MPI_INTEGER, b, 4, MPI_INTEGER, root, world, error)
      else
        call MPI_Gather(a, 4, MPI_INTEGER, b, 4, MPI_INTEGER, root, world, error)
      end if
      call log_collective('alltoall', -1, 12*ranks, 12*ranks)
      call MPI_Alltoall(a, 3, MPI_INTEGER, b, 3, MPI_INTEGER, world, error)
    end do
  end subroutine

  subroutine accesses()
    WINDOW :: window
    integer(kind=MPI_ADDRESS_KIND) :: place
    integer :: target
    place = 0
    call MPI_Win_create(memory, int(2048, MPI_ADDRESS_KIND), 8, MPI_INFO_NULL, world, window, error)
    call MPI_Win_fence(0, window, error)
    do target = 0, ranks - 1
      write (out, '(a,i0,a)') 'P rma_iput ', target, ' 20'
      call MPI_Put(a, 5, MPI_INTEGER, target, place, 5, MPI_INTEGER, window, error)
      write (out, '(a,i0,a)') 'P rma_iget ', target, ' 24'
      call MPI_Get(b, 3, MPI_INTEGER8, target, place + 10, 3, MPI_INTEGER8, window, error)
    end do
    call MPI_Win_fence(0, window, error)
    call MPI_Win_free(window, error)
  end subroutine
end program
