"""Calls of a function that nobody trusts, on a GPU: as `candidate.py` has them on a CPU."""

import ctypes
from time import sleep

from .candidate import ANNOUNCED, COUNT, IS_QUEUED, NO_MORE, OPENED, READY, RECORD, RESULTS, RUNG, TOLD, Page
from .driver import STREAM, Driver

DEVICE_MAP = 2
REACHED = 0
NOT_READY = 600

# Between two looks for the next turn; meanwhile the device may fail.
LOOK_S = 1e-4


class DevicePage(Page):
    """The words that are shared with the referee, which streams wait for and write; tensors lie in its memory of
    the GPU."""

    def __init__(self, opened):
        super().__init__(opened)
        self.driver = driver = Driver()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        driver.check(driver.cuMemHostRegister_v2(address, self.page_bytes, DEVICE_MAP), "sharing a page")
        self.address = driver.made(ctypes.c_uint64, driver.cuMemHostGetDevicePointer_v2, address, 0)

    def share(self, told):
        super().share(told)
        driver = self.driver
        self.base = driver.opened(told["handle"])
        self.bytes = self.sets * self.tensors["set_bytes"]
        text, entry = (held.encode() for held in told["kernel"])
        self.entry = told["kernel"][1]
        module = driver.made(ctypes.c_void_p, driver.cuModuleLoadData, text)
        self.kernel = driver.made(ctypes.c_void_p, driver.cuModuleGetFunction, module, entry)
        self.cells = (ctypes.c_uint64 * 3)()
        places = (ctypes.addressof(self.cells) + 8 * number for number in range(3))
        self.arguments = (ctypes.c_void_p * 3)(*places)

    def array(self, framework, held, offset):
        return framework.at(self.base + offset, held["dtype"], held["shape"])

    def is_announced(self, number):
        words, is_at_work = self.words, True
        while (announced := words[ANNOUNCED]) != number:
            if announced == NO_MORE:
                return False
            if is_at_work:
                result = self.driver.cuStreamQuery(STREAM)
                is_at_work = result == NOT_READY
                if not is_at_work:
                    self.driver.check(result, "running the function")
            sleep(LOOK_S)
        return True

    def turn(self, program, number):
        """Calls between the gate and the bell, queued on the stream where nothing waits for the device."""
        words, is_queued = self.words, self.words[IS_QUEUED]
        program.results = program.left = None
        if is_queued:
            result = self.driver.cuStreamWaitValue32_v2(STREAM, self.address + 8 * OPENED, number, REACHED)
            self.driver.check(result, "waiting for the gate")
        else:
            words[READY] = number
            self.wait_for(OPENED, number)
        self.take_device()
        left = []
        for held in program.sets[: words[COUNT]]:
            program.resume(held)
            program.results = program.runner.call()
            left.extend(program.take_left())
        result = self.driver.cuStreamWriteValue32_v2(STREAM, self.address + 8 * RUNG, number, 0)
        self.driver.check(result, "ringing the bell")
        program.left = left
        self.tell(program.framework, left)
        words[TOLD] = number
        if is_queued:
            words[READY] = number

    def take_device(self):
        """Launches a kernel that does nothing, so that an empty function has the device, too."""
        result = self.driver.cuLaunchKernel(self.kernel, 1, 1, 1, 32, 1, 1, 0, STREAM, self.arguments, None)
        self.driver.check(result, "launching nothing")

    def tell(self, framework, results):
        """Says where results lie."""
        words = self.words
        for place, array in zip(range(RESULTS, len(words), RECORD), results):
            framework.refuse_elsewhere(array)
            address, count = framework.place(array)
            is_shared = self.base <= address < self.base + self.bytes
            words[place + 1] = count
            words[place + 2] = is_shared
            if is_shared or not count:
                words[place], words[place + 2] = address - self.base if is_shared else 0, True
                continue
            base, handle = self.driver.allocation(address)
            words[place] = address - base
            for part in range(8):
                held = bytes(handle.bytes[8 * part : 8 * part + 8])
                words[place + 4 + part] = int.from_bytes(held, "little")
