"""Kafka's property file -> typed settings.

`load.load_settings` reads a controller's file. Placeholders of ``config.providers`` are replaced (`providers`), every
key is judged (`key_uses`), values get their types (`types`), and rules between keys are checked (`checks`)::

    settings, warnings = load_settings(Path("controller.properties"))   # OperatorError for the first fault
    settings.metadata_log_segment_bytes                                 # the key with underscores, in Kafka's unit

`keys` is the table of all keys: Kafka's (`kafka_keys`, generated) and this program's. `properties` and `property_edits`
read and change files as ``java.util.Properties`` does. `kafka_rules`, `kafkas_broker` and `kafkas_controller` tell what
stock Kafka would refuse; `open_doors`, `super_users` and `process_rights` what is allowed, but dangerous.

**Contract.** Loading reads the property file, and the files and environment variables that its placeholders name. An
error names file, key, what is wrong and the remedy. A warning is one sentence.

**What always holds.** Each key of Kafka 3.9.1 and of this program is acted upon, refused or ignored, and in exactly one
of these lists (`key_lists`). A key is refused when ignoring it would make the node less secure than its file says. A
`types.Secret` is never printed, and no message quotes a value that a provider has looked up.
"""
