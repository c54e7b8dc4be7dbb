#!/usr/bin/env python3
"""A web server and an S3 server over a folder, with faults, for the tests of stores/. Needs the standard library alone.

usage: store_server.py FOLDER LOG [PORT-FILE]

Serves FOLDER at http://127.0.0.1:PORT/FAULT/path, where FAULT is "ok" or the name of a fault below, and writes a line "METHOD path range" for each
request to LOG. Below /s3/BUCKET it is an S3 server that proves every signature (SigV4; key "testkey", secret "test/secret+key"), with multipart
uploads; below /gs/BUCKET it wants a bearer token ("testtoken", or one that /lend/google has given); GETs of the bucket "public" need neither. Files fail-uploads,
fail-completions and slow-uploads in FOLDER have the second part of an upload refused, its end fail with status 200, and every request of one wait;
fail-manifest: dataset.json is not taken; spoil-uploads: when an upload begins, folders are made that the file lists;
below /lend it lends credentials as STS, Google and machines do;
short-lives: what is lent below /lend ends in a minute, or in the seconds that it says; lends-once: a machine's role is lent once; loses-role: it has one so
many times; renewed-token: who renews a sign-on is refused, and finds what follows the first line in the file that this names; slow-gets: a file of gs
is given after a second; clock: how many seconds Google's clock is ahead; below /silent nobody answers;
held-after: below /held so many files are given, and the others are waited for;
hidden-files: what is not there is 403, as to keys that may not list. PORT-FILE gets the port once the server listens.
"""
import glob
import hashlib
import hmac
import http.server
import itertools
import json
import os
import re
import socket
import sys
import threading
import time
import urllib.parse

import store_lenders

LENT = "lent-by/this+server"  # a token of a machine, container or web identity
KEY, SECRET, TOKEN, BEARER = "testkey", "test/secret+key", "test/session+token", "testtoken"
SOURCE_KEY, MIDDLE_KEY, SOURCE_SECRET = "sourcekey", "middlekey", "source/secret+key"  # may assume roles, and not read
lock = threading.Lock()
counts = {}  # how often a path was asked for with a fault
uploads = {}
numbers = itertools.count()


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + store_lenders.offset(folder) if timestamp is None else timestamp)

    # ---- answers ----

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status, code, message, headers=()):
        body = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.answer(status, body, (("Content-Type", "application/xml"), *headers))

    def cut(self):
        """Ends the connection as a crash does."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    # ---- files ----

    def part_of(self, length):
        """Returns first and last byte asked for, and whether that is a part."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return 0, length - 1, False
        return int(match[1]), min(int(match[2] or length), length - 1), True

    def give_file(self, path, fault="ok", count=1):
        try:
            state = os.stat(path)
        except OSError:
            return self.fail(404, "NoSuchKey", "The specified key does not exist.")
        length = state.st_size
        is_manifest = path.endswith("dataset.json")
        first, last, part = self.part_of(length)
        if fault == "no-parts" and part:
            first, last, part = 0, length - 1, False
        if part and first >= length:
            return self.fail(416, "InvalidRange", "The requested range is not satisfiable")
        with open(path, "rb") as file:
            file.seek(first)
            body = file.read(last + 1 - first)
        total, told = length, last + 1 - first
        if not is_manifest:
            if fault == "other-bytes" or (fault == "other-bytes-once" and count <= 1):
                body = body[:1000] + bytes([body[1000] ^ 255]) + body[1001:]
            if fault == "lies-total":
                total += 1
            if fault == "lies-shorter":
                body = body[:-100] if len(body) > 100 else body
                told = len(body)
            if fault == "lies-longer":
                body, told = body + b"x" * 100, told + 100
            if fault == "other-part" and part:
                first, last = first + 1, last + 1
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(told))
        self.send_header("ETag", f'"{state.st_mtime_ns:x}-{count if fault == "replaced" else 0}"')
        if part:
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        self.end_headers()
        if not is_manifest and (fault == "cuts" or (fault == "cuts-twice" and count <= 2)):
            self.wfile.write(body[:len(body) // 2])
            return self.cut()
        if not is_manifest and (fault == "stalls" or (fault == "stalls-once" and count <= 1)):
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            time.sleep(20)
            return self.cut()
        if fault == "slow":
            for at in range(0, len(body), 1 << 14):
                self.wfile.write(body[at:at + (1 << 14)])
                self.wfile.flush()
                time.sleep(0.02)
            return None
        self.wfile.write(body)
        return None

    def give_fault(self, fault, path):
        with lock:
            key = (fault, path)
            counts[key] = count = counts.get(key, 0) + 1
        is_manifest = path.endswith("dataset.json")
        if fault == "held" and not is_manifest:
            with lock, open(os.path.join(folder, "held-after"), encoding="utf-8") as file:
                counts["held"] = number = counts.get("held", 0) + 1
                holds = number > int(file.read())
            if holds:
                time.sleep(100)
                return self.cut()
        if fault in ("503", "429") or (fault in ("503-twice", "503-after") and count <= 2):
            headers = (("Retry-After", "1"),) if fault == "503-after" else ()
            return self.fail(int(fault[:3]), "SlowDown", "Please reduce your request rate.", headers)
        if fault == "403" or (fault == "403-shards" and not is_manifest):
            return self.fail(403, "AccessDenied", "Access Denied")
        if fault == "500":
            return self.answer(500, b"<html>an error page</html>")
        if fault == "redirect":
            return self.answer(302, b"", (("Location", "/ok/" + os.path.relpath(path, folder)),))
        if fault == "redirect-loop":
            return self.answer(302, b"", (("Location", self.path),))
        return self.give_file(path, fault, count)

    # ---- S3 ----

    def wrong_signature(self, service="s3", body=None, pairs_of_keys=None):
        """Returns what is wrong with the signature of this request, None: nothing. body: is signed, as all services but S3 want it."""
        known = pairs_of_keys or {KEY: (SECRET, TOKEN)}
        match = re.fullmatch(rf"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{{8}})/([^/]+)/{service}/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)",
                             self.headers.get("Authorization", ""))
        if not match or match[1] not in known:
            return "AccessDenied" if not match else "InvalidAccessKeyId"
        _, date, region, signed, signature = match.groups()
        path, _, query = self.path.partition("?")
        pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for k, v in pairs)
        headers = "".join(f"{name}:{' '.join((self.headers.get(name) or '').split())}\n" for name in signed.split(";"))
        secret, right_token = known[match[1]]
        body_hash = self.headers.get("x-amz-content-sha256") if body is None else hashlib.sha256(body.encode()).hexdigest()
        if any(name not in self.headers for name in signed.split(";")):
            return "SignatureDoesNotMatch"
        if not body_hash or "host" not in signed or (body is None and "x-amz-content-sha256" not in signed):
            return "SignatureDoesNotMatch"
        request = "\n".join([self.command, path, query, headers, signed, body_hash])
        scope = f"{date}/{region}/{service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers.get("x-amz-date", ""), scope, hashlib.sha256(request.encode()).hexdigest()])
        key = sign(sign(sign(sign(("AWS4" + secret).encode(), date), region), service), "aws4_request")
        if hmac.new(key, text.encode(), hashlib.sha256).hexdigest() != signature:
            return "SignatureDoesNotMatch"
        token = self.headers.get("x-amz-security-token")
        if token is not None and (token != right_token or "x-amz-security-token" not in signed):
            return "InvalidToken"
        return None

    def give_s3(self, name):
        bucket, _, key = name.partition("/")
        if bucket == "elsewhere":
            return self.fail(301, "PermanentRedirect", "Use the endpoint of the bucket.", (("x-amz-bucket-region", "eu-central-1"),))
        is_public = bucket == "public" and self.command == "GET" and "Authorization" not in self.headers
        wrong = None if is_public else self.wrong_signature()
        if wrong:
            return self.fail(403, wrong, "The request was refused.")
        path = os.path.join(folder, bucket, urllib.parse.unquote(key))
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        if self.command == "GET":
            if os.path.exists(os.path.join(folder, "hidden-files")) and not os.path.exists(path):  # keys that may not list
                return self.fail(403, "AccessDenied", "Access Denied")
            return self.give_file(path)
        return self.take_upload(path, query)

    def save(self, path, body):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(body)

    def take_upload(self, path, query):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fails = os.path.exists(os.path.join(folder, "fail-uploads"))
        if os.path.exists(os.path.join(folder, "slow-uploads")):
            time.sleep(0.3)
        if self.command == "POST" and "uploads" in query:
            number = f"upload/{next(numbers)}+x"
            uploads[number] = {}
            if os.path.exists(os.path.join(folder, "spoil-uploads")):  # its id cannot be noted
                with open(os.path.join(folder, "spoil-uploads"), encoding="utf-8") as file:
                    for pattern in file.read().split():
                        for base in glob.glob(os.path.dirname(pattern)):
                            os.makedirs(os.path.join(base, os.path.basename(pattern), "x"), exist_ok=True)
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode())
        number = query.get("uploadId")
        if number is not None and number not in uploads:
            return self.fail(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        if self.command == "DELETE":
            uploads.pop(number, None)
            if number is None and os.path.exists(path):
                os.remove(path)
            return self.answer(204)
        if self.command == "PUT" and number is not None:
            with lock:
                counts[path, "put"] = count = counts.get((path, "put"), 0) + 1
            if fails and int(query["partNumber"]) > 1:
                return self.fail(403, "AccessDenied", "The quota is used up.")
            if count == 2:  # every upload has such a moment
                return self.fail(503, "SlowDown", "Please reduce your request rate.")
            tag = '"' + hashlib.md5(body).hexdigest() + '"'
            uploads[number][int(query["partNumber"])] = (tag, body)
            return self.answer(200, b"", (("ETag", tag),))
        if self.command == "POST":
            listed = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", body.decode())
            if os.path.exists(os.path.join(folder, "fail-completions")):  # S3 begins its answer before it knows
                return self.answer(200, b"<Error><Code>InternalError</Code><Message>Please try again.</Message></Error>")
            parts = uploads.pop(number)
            tags = [(int(n), t.replace("&quot;", '"')) for n, t in listed]
            if tags != [(n, parts[n][0]) for n in sorted(parts)]:
                return self.fail(400, "InvalidPart", "One or more of the specified parts could not be found.")
            body = b"".join(parts[n][1] for n in sorted(parts))
            if "train-00001" in path:  # the answer gets lost
                self.save(path, body)
                return self.cut()
        if path.endswith("/dataset.json") and os.path.exists(os.path.join(folder, "fail-manifest")):
            return self.fail(403, "AccessDenied", "Access Denied")
        self.save(path, body)
        return self.answer(200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>", (("ETag", '"x"'),))

    # ---- credentials ----

    def lend(self, path):
        """Answers as IMDSv2, ECS, STS and Google's metadata server do, where what they want is there."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lifetime()))
        keys = f'{{"AccessKeyId": "{KEY}", "SecretAccessKey": "{SECRET}", "Token": "{TOKEN}", "Expiration": "{end}"}}'.encode()
        role = "latest/meta-data/iam/security-credentials/"
        if path == "imds/latest/api/token":
            with lock:
                counts["lent"] = counts.get("lent", 0) + 1
                if counts["lent"] > 1 and os.path.exists(os.path.join(folder, "lends-once")):
                    return self.answer(503)
            right = self.command == "PUT" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return self.answer(200, LENT.encode()) if right else self.answer(400)
        if path.startswith("imds/" + role):
            if self.headers.get("X-aws-ec2-metadata-token") != LENT:
                return self.answer(401)
            if counts["lent"] > number_in("loses-role", counts["lent"]):
                return self.answer(404)
            return self.answer(200, keys if path.endswith("/packer") else b"packer")
        if path == "container":
            return self.answer(200, keys) if self.headers.get("Authorization") == LENT else self.answer(401)
        if path == "sts/":
            query = dict(urllib.parse.parse_qsl(body))
            if query.get("Action") == "AssumeRole":
                return self.assume_role(query, body, end)
            if query.get("WebIdentityToken") != LENT or query.get("RoleArn") != "arn:aws:iam::1:role/packer":
                return self.fail(400, "InvalidIdentityToken", "The web identity token is not valid.")
            return self.answer(200, keys_of_role(KEY, SECRET, TOKEN, end))
        if path.startswith("google/"):
            url = f"http://{self.headers['Host']}{self.path}"
            status, told = store_lenders.google(folder, path[len("google/"):], body, self.headers, url, time.time(), lifetime(), (LENT, BEARER))
            return self.answer(status, json.dumps(told).encode())
        if path == "oidc/token" and os.path.exists(os.path.join(folder, "renewed-token")):  # another process was first
            with open(os.path.join(folder, "renewed-token"), encoding="utf-8") as file:
                place, text = file.read().split("\n", 1)
            self.save(place, text.encode())
            return self.answer(400, b'{"error": "invalid_grant"}')
        if path.startswith(("sso/", "oidc/")):
            end_ms = int(time.time() + lifetime()) * 1000
            status, told = store_lenders.sign_on(path, self.path, body, self.headers, end_ms, (KEY, SECRET, TOKEN))
            return self.answer(status, json.dumps(told).encode())
        if path == "computeMetadata/v1/instance/service-accounts/default/token" and self.headers.get("Metadata-Flavor") == "Google":
            return self.answer(200, f'{{"access_token": "{BEARER}", "expires_in": {lifetime()}, "token_type": "Bearer"}}'.encode())
        return self.answer(404)

    def assume_role(self, query, body, end):
        """Lends the role "middle" to the keys of a source, and the role "packer" to them and to "middle", to whom it asks for as it is written."""
        wrong = self.wrong_signature("sts", body, {SOURCE_KEY: (SOURCE_SECRET, TOKEN), MIDDLE_KEY: (SOURCE_SECRET, TOKEN), KEY: (SECRET, TOKEN)})
        if wrong:  # STS tells all that was to be signed
            return self.fail(403, wrong, "It should have been x-amz-security-token:" + (self.headers.get("x-amz-security-token") or ""))
        role = query.get("RoleArn", "").rpartition("/")[2]
        if role == "middle":
            return self.answer(200, keys_of_role(MIDDLE_KEY, SOURCE_SECRET, TOKEN, end))
        wanted = {"RoleSessionName": "a.run", "ExternalId": "an=id/+", "DurationSeconds": "1800"}
        if role != "packer" or any(query.get(name) != value for name, value in wanted.items()):
            return self.fail(403, "AccessDenied", "The role may not be assumed.")
        return self.answer(200, keys_of_role(KEY, SECRET, TOKEN, end))

    # ---- requests ----

    def handle_request(self):
        path = self.path.partition("?")[0]
        if path.startswith("http://sts.test/"):  # as a proxy is asked
            path = path[len("http://sts.test"):]
        with lock, open(log, "a", encoding="utf-8") as file:
            file.write(f"{self.command} {self.path} {self.headers.get('Range', '')}\n")
        first, _, rest = path[1:].partition("/")
        if first in ("lend", "computeMetadata"):
            return self.lend(rest if first == "lend" else path[1:])
        if first == "silent":
            time.sleep(20)
            return self.cut()
        if first == "s3":
            return self.give_s3(rest)
        if first == "gs":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            reads = self.command == "GET"
            if token != BEARER and not (reads and rest.startswith("public/") and not token) and store_lenders.google_refuses(
                    token, not reads, time.time(), folder):
                return self.fail(401, "AuthenticationRequired", "Authentication required.")
            if os.path.exists(os.path.join(folder, "slow-gets")):
                time.sleep(1)
            path = os.path.join(folder, urllib.parse.unquote(rest))
            if self.command != "GET":
                return self.take_upload(path, dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True)))
            return self.give_file(path)
        return self.give_fault(first, os.path.join(folder, urllib.parse.unquote(rest)))

    def do_GET(self):
        try:
            self.handle_request()
        except OSError:
            self.close_connection = True

    do_PUT = do_POST = do_DELETE = do_GET


def keys_of_role(key, secret, token, end):
    """Returns an answer of STS."""
    return (f"<Response><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>"
            f"<Expiration>{end}</Expiration></Credentials></Response>").encode()


def number_in(name, otherwise):
    """Returns the number in a file of the folder; otherwise: where it is not there."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return int(file.read() or 60)
    except FileNotFoundError:
        return otherwise


def lifetime():
    """Returns for how many seconds credentials are lent."""
    return number_in("short-lives", 3600)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    folder, log = sys.argv[1:3]
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 3:
        with open(sys.argv[3] + ".new", "w", encoding="utf-8") as file:
            file.write(str(server.server_address[1]))
        os.rename(sys.argv[3] + ".new", sys.argv[3])
    server.serve_forever()
