"""Signals as they are for a program that a terminal starts.

Under nohup, and in the background of a shell, some are ignored; programs that tests start would inherit that.
"""

from __future__ import annotations

import signal

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
