"""Asks Kafka's own classes how they read a value, a connection string of ZooKeeper, or a whole property file.

One Java process answers all questions of a call. A test compares the answers with this program's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from migrator.config.property_edits import file_of
from migrator.parts.java import Jvm, java_command
from migrator.parts.kafka import StockKafka

PROGRAM = """
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.server.KafkaConfig;
import kafka.server.RaftControllerNodeProvider;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.ConfigType;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.zookeeper.client.ConnectStringParser;
import scala.jdk.javaapi.CollectionConverters;

class KafkaReader {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable refused) {
                answer.put("refused", String.valueOf(refused));
            }
            System.out.println("ANSWER " + JSON.writeValueAsString(answer));
        }
    }

    static void answer(JsonNode asked, ObjectNode answer) throws Exception {
        if (asked.has("key")) {
            ConfigDef.ConfigKey known = KafkaConfig.configDef().configKeys().get(asked.get("key").asText());
            Object found = ConfigDef.parseType(known.name, asked.get("text").asText(), known.type());
            if (known.validator != null) known.validator.ensureValid(known.name, found);
            answer.set("value", plain(found));
        } else if (asked.has("connect")) {
            ConnectStringParser parser = new ConnectStringParser(asked.get("connect").asText());
            ArrayNode servers = answer.putArray("servers");
            parser.getServerAddresses().forEach(each -> servers.add(each.getHostString() + ":" + each.getPort()));
            answer.put("chroot", parser.getChrootPath() == null ? "" : parser.getChrootPath());
        } else if (asked.has("zookeeper mode")) {
            answer.set("kinds", plain(ConfigType.ALL));
            answer.put("newest", MetadataVersion.LATEST_PRODUCTION.toString());
        } else {
            KafkaConfig config = KafkaConfig.fromProps(Utils.loadProps(asked.get("file").asText()), false);
            if (asked.has("controllers")) {
                answer.put("protocol", RaftControllerNodeProvider.apply(null, config).securityProtocol().name);
            } else if (asked.has("topic key")) {
                Properties topic = new Properties();
                topic.put(asked.get("topic key").asText(), asked.get("text").asText());
                LogConfig.validate(Map.of(), topic, config.extractLogConfigMap(),
                    config.remoteLogManagerConfig().isRemoteStorageSystemEnabled(), config.requiresZookeeper());
            } else {
                file(config, answer);
            }
        }
    }

    static void file(KafkaConfig config, ObjectNode answer) {
        answer.set("log.dirs", plain(CollectionConverters.asJava(config.logDirs())));
        answer.put("metadata.log.dir", config.metadataLogDir());
        answer.set("controllers", plain(CollectionConverters.asJava(config.controllerListenerNames())));
        ObjectNode listeners = answer.putObject("listeners");
        CollectionConverters.asJava(config.listeners()).forEach(each -> listeners.put(
            each.listenerName().value(), each.host() + ":" + each.port() + ":" + each.securityProtocol().name));
        ObjectNode map = answer.putObject("map");
        CollectionConverters.asJava(config.effectiveListenerSecurityProtocolMap()).forEach(
            (name, protocol) -> map.put(name.value(), protocol.name));
        answer.put("inter.broker", config.interBrokerListenerName().value());
        answer.put("node.id", config.nodeId());
    }

    static JsonNode plain(Object found) {
        if (found instanceof Password) return TextNode.valueOf(((Password) found).value());
        if (found instanceof Class) return TextNode.valueOf(((Class<?>) found).getName());
        return JSON.valueToTree(found);
    }
}
"""


class KafkaReader:
    """One child process a call."""

    def __init__(self, kafka: StockKafka, directory: Path) -> None:
        self._kafka = kafka
        self._directory = directory

    def ask(self, questions: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
        """An answer for each question: ``refused`` with Kafka's words, or what Kafka reads.

        :param questions: ``key`` and ``text``; ``connect``, a connection string of ZooKeeper; ``file``, a path, and
            beside ``file`` the word ``controllers`` for the protocol in which that broker looks for its controllers, or
            ``topic key`` and ``text``, a setting of a topic that this broker judges; ``zookeeper mode``, for the kinds
            of resources that have configurations there, and the newest metadata.version.
        """
        program = self._directory / "KafkaReader.java"
        program.write_text(PROGRAM)
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        command = java_command(self._kafka.classpath, str(program), jvm=Jvm())
        said = subprocess.run(command, check=True, capture_output=True, timeout=300, text=True, input=lines).stdout
        marked = (line.partition("ANSWER ") for line in said.splitlines())
        return [json.loads(rest) for _, mark, rest in marked if mark]

    def ask_of_files(self, files: Iterable[Mapping[str, str]], **more: str) -> list[dict[str, Any]]:
        """The same, of files with these keys."""
        return self.ask({"file": str(self.write(number, keys)), **more} for number, keys in enumerate(files))

    def write(self, number: int, keys: Mapping[str, str]) -> Path:
        """A property file."""
        path = self._directory / f"{number}.properties"
        path.write_text(file_of(keys))
        return path
