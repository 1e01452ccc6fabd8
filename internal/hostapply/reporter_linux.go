package hostapply

// reporter is a plugin of Ansible that writes a line of JSON for the start of the play and for the end of each task.
const reporter = `# Reports the tasks of a play to the file that BAILEY_STEPS names, one JSON object a line.
import json
import os

from ansible.playbook.block import Block
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = 'notification'
    CALLBACK_NAME = 'bailey_report'
    CALLBACK_NEEDS_ENABLED = True

    def _line(self, **values):
        with open(os.environ['BAILEY_STEPS'], 'a') as report:
            report.write(json.dumps(values) + '\n')

    def v2_playbook_on_play_start(self, play):
        names = []
        for entry in play.get_tasks():
            tasks = entry if isinstance(entry, list) else [entry]
            names += [t.get_name() for t in tasks if not isinstance(t, Block)]
        self._line(tasks=names)

    def _end(self, result, state):
        self._line(task=result._task.get_name(), state=state)

    def v2_runner_on_ok(self, result, **kwargs):
        self._end(result, 'changed' if result._result.get('changed') else 'ok')

    def v2_runner_on_skipped(self, result, **kwargs):
        self._end(result, 'skipped')

    def v2_runner_on_failed(self, result, ignore_errors=False, **kwargs):
        self._end(result, 'ignored' if ignore_errors else 'failed')

    def v2_runner_on_unreachable(self, result, **kwargs):
        self._end(result, 'failed')
`
