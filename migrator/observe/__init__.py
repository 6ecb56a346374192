"""The view that operators and their tools have of a controller: status, metrics, journal and logs.

* The status: `status.Status` is one value that the node fills. `status_page` and `top_page` make of it the lines of
  `migrator status` and `migrator top`; `next_steps` says what to do next; `problem_groups` and `rates` help.
* Metrics: `metrics.Reading` is one value, with Kafka's names where Kafka has the figure. `metrics_endpoint` serves it
  to Prometheus, and to tools that read beans (`beans`); `metrics_access` decides who may read.
* The journal: `journal.Journal` keeps the events of the migration across restarts.
* Logs: `logs` formats the process log, `logins` limits lines about failed logins, `authorizer_log` writes the file of
  the authorizer, and `printable` makes foreign text safe for terminals and logs.
* `loop_health` measures the event loop, and keeps threads and the garbage collector from delaying it.

**What always holds.** Text from clients and peers is escaped before a terminal or a log gets it. No log line, metric or
page has a secret. A reader never delays the controller: queues, connections, and the time and bytes of an answer are
bounded. An order is in the journal on disk before it is carried out.
"""
