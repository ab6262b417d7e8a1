"""The development ZooKeeper: one server process run from the jars that come with pyspark.

Used by `ddswan zookeeper`, `up`, `demo` and the tests; production fabrics bring their own
ensemble. Not made for data that matters: it does not wait for the disk.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from gateway import slices
from gateway.config import is_host
from gateway.errors import ConfigError, CoordinationError

_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)
"""What the server needs of the 250 jars; a short class path halves the time to start."""

_JAVA_HELP = "install a Java 17+ runtime, for example apt install openjdk-17-jre-headless"

# The kernel ends the server when the thread that started it dies. The check of the parent closes
# the gap before prctl, and a process of its own is safe where a preexec_fn in a threaded parent
# is not.
_TIED_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago: ZooKeeper cannot pick one by itself."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class EmbeddedZooKeeper:
    """One server. `start` belongs on a thread that lives as long as the server shall (the main
    thread): the server is killed when that thread ends."""

    def __init__(self, port: int, data_dir: Path | str, host: str = "127.0.0.1") -> None:
        self.port = port
        self.host = host
        self.data_dir = Path(data_dir)
        self.log_file = self.data_dir / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 30.0) -> None:
        """Returns when the server answers; raises ConfigError or CoordinationError with what to
        do."""
        if self._process is not None:
            raise CoordinationError(f"the ZooKeeper at {self.address} was started before")
        java = find_java()
        jars = find_jars()
        self._check_address()
        try:
            self._prepare()
            self._spawn(java, jars)
            self._wait_until_it_answers(timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the server by its own pid, the hard way after the timeout."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def wait(self) -> int:
        """Blocks until the server has ended; its exit code."""
        if self._process is None:
            raise CoordinationError(f"the ZooKeeper at {self.address} is not started")
        return self._process.wait()

    def _check_address(self) -> None:
        if not 0 < self.port < 65_536:
            raise ConfigError(f"port {self.port} is not between 1 and 65535; mend --port")
        if not is_host(self.host):
            raise ConfigError(f"{self.host!r} is no host; mend --host")
        try:
            address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(address[0]) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address[4])
        except OSError as error:
            raise CoordinationError(
                f"ZooKeeper cannot listen on {self.address} "
                f"({error.strerror}); choose another --port"
            ) from error

    def _prepare(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            (self.data_dir / "zoo.cfg").write_text(self._configuration())
            (self.data_dir / "log4j2.properties").write_text(_LOGGING)
            self._lock = (self.data_dir / "lock").open("w")
        except OSError as error:
            raise CoordinationError(
                f"ZooKeeper cannot keep its data in {self.data_dir} ({error.strerror}); "
                "choose another --data directory"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CoordinationError(
                f"another ZooKeeper uses {self.data_dir}; choose another --data directory"
            ) from error

    def _configuration(self) -> str:
        settings = {
            "dataDir": self.data_dir.resolve(),
            "clientPort": self.port,
            "clientPortAddress": self.host,
            # The tick is the grain of session expiry.
            "tickTime": 500,
            "minSessionTimeout": 2000,
            "maxSessionTimeout": 60000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            "4lw.commands.whitelist": "ruok,srvr,mntr,cons,wchs",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _spawn(self, java: str, jars: str) -> None:
        command = [
            java,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={(self.data_dir / 'log4j2.properties').resolve()}",
            "-Dzookeeper.forceSync=no",
            # Kilobytes of each transaction log that are reserved in advance; default 64 MB.
            "-Dzookeeper.preAllocSize=4096",
            "-cp",
            jars,
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str((self.data_dir / "zoo.cfg").resolve()),
        ]
        with self.log_file.open("wb") as log_file, slices.unhurried():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TIED_LAUNCH, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal reaches the owner only, who ends things in order.
                start_new_session=True,
            )

    def _wait_until_it_answers(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._is_answering():
            if not self.is_running:
                raise CoordinationError(
                    f"the ZooKeeper at {self.address} ended at once: {self._last_words()} "
                    f"(see {self.log_file})"
                )
            if time.monotonic() > deadline:
                raise CoordinationError(
                    f"the ZooKeeper at {self.address} does not answer after {timeout_s:.0f} s; "
                    f"see {self.log_file}"
                )
            time.sleep(0.02)

    def _is_answering(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(16) == b"imok"
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"


def find_jars() -> str:
    """The class path of the server; raises CoordinationError when pyspark is not there."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CoordinationError("the embedded ZooKeeper comes with pyspark; install pyspark")
    folder = Path(spec.origin).parent / "jars"
    jars = [str(jar) for pattern in _JARS for jar in sorted(folder.glob(pattern))]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in jars):
        raise CoordinationError(f"{folder} holds no ZooKeeper; install pyspark again")
    return os.pathsep.join(jars)


def find_java() -> str:
    """The java command to use, version 17 or newer; raises CoordinationError otherwise."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise CoordinationError(f"the embedded ZooKeeper needs Java; {_JAVA_HELP}")
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CoordinationError(f"{java} does not work ({error}); {_JAVA_HELP}") from error
    version = re.search(r'version "(\d+)', told.stderr + told.stdout)
    if version is None or int(version[1]) < 17:
        found = version[1] if version else "an unknown version"
        raise CoordinationError(f"{java} is Java {found}, too old; {_JAVA_HELP}")
    return java
