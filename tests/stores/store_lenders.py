"""Google's and Amazon's servers of tokens for store_server.py: OAuth 2 with the proof of a service account's signature, token exchange, impersonation;
single sign-on. Each function returns a status and a body."""
import base64
import hashlib
import itertools
import json
import os
import re
import urllib.parse

EMAIL, KEY_ID = "packer@lab.iam.gserviceaccount.com", "key-1"
SCOPES = "https://www.googleapis.com/auth/"
issued = {}  # access tokens: until when, and whether they may write
refreshed = set()
numbers = itertools.count(1)


def offset(folder):
    """Returns how many seconds Google's clock is ahead of this machine's: the file "clock"."""
    path = os.path.join(folder, "clock")
    return int(open(path, encoding="utf-8").read()) if os.path.exists(path) else 0


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def wrong_signature(folder, text, signature):
    """Proves RSASSA-PKCS1-v1_5 with SHA-256 by the modulus in the file "google-key" (exponent 65537)."""
    with open(os.path.join(folder, "google-key"), encoding="utf-8") as file:
        modulus = int(file.read(), 16)
    length = (modulus.bit_length() + 7) // 8
    digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(text).digest()
    wanted = b"\0\1" + b"\xff" * (length - len(digest) - 3) + b"\0" + digest
    return len(signature) != length or pow(int.from_bytes(signature, "big"), 65537, modulus).to_bytes(length, "big") != wanted


def issue(token, scope, now, lifetime):
    """Returns an access token that is good for so long; token: "" makes one."""
    token = token or f"testtoken-{next(numbers)}"
    issued[token] = (now + lifetime, scope == SCOPES + "devstorage.read_write")
    return 200, {"access_token": token, "expires_in": lifetime, "token_type": "Bearer"}


def refuse(why):
    return 400, {"error": "invalid_grant", "error_description": why}


def take_jwt(folder, assertion, url, now, lifetime):
    head, payload, signature = assertion.split(".")
    header, claims = json.loads(decode(head)), json.loads(decode(payload))
    if header != {"alg": "RS256", "typ": "JWT", "kid": KEY_ID} or claims.get("aud") != url:
        return refuse("Bad: " + assertion)
    if claims.get("iss") != EMAIL:
        return refuse("Invalid grant: account not found")
    if wrong_signature(folder, (head + "." + payload).encode(), decode(signature)):
        return refuse("Invalid JWT Signature.")
    if not now - 300 < claims["iat"] < now + 300 or claims["exp"] != claims["iat"] + 3600:
        return refuse("Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.")
    return issue("", claims["scope"], now, lifetime)


def google(folder, path, body, headers, url, now, lifetime, known):
    """path: below /lend/google. known: the token of a machine, and the one that users get."""
    lent, bearer = known
    now += offset(folder)
    query = dict(urllib.parse.parse_qsl(body))
    if path == "token" and query.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer":
        return take_jwt(folder, query["assertion"], url, now, lifetime)
    if path == "token":
        if query != {"grant_type": "refresh_token", "client_id": "client.id", "client_secret": "client/secret+x", "refresh_token": "1//refresh+x"}:
            return refuse("Bad: " + body)
        return issue(bearer, SCOPES + "devstorage.read_write", now, lifetime)
    if path == "identity":  # GitHub's, of a job
        if headers.get("Authorization") != "bearer refresh+x" or headers.get("X-More") != "a b":
            return 403, {"message": "Bad: " + str(headers.get("Authorization"))}
        return 200, {"count": 1, "value": lent}
    if path == "sts":
        wanted = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
                  "audience": "//iam.googleapis.com/pools/lab", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "subject_token": lent}
        if {name: value for name, value in query.items() if name != "scope"} != wanted:
            return 400, {"error": "invalid_request", "error_description": "Bad: " + body}
        return issue("", query.get("scope"), now, lifetime)
    if path == "impersonate/packer:generateAccessToken":
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = json.loads(body)
        if token not in issued or wanted.get("lifetime") != "3600s":
            return 403, {"error": {"code": 403, "message": "Bad: " + token, "status": "PERMISSION_DENIED"}}
        given = issue("", wanted["scope"][0], now, lifetime)[1]
        return 200, {"accessToken": given["access_token"], "expireTime": "2099-01-01T00:00:00Z"}
    return 404, {}


def google_refuses(token, writes, now, folder):
    """Returns whether a bucket's server does not take the token."""
    end, may_write = issued.get(token, (0, False))
    return now + offset(folder) >= end or (writes and not may_write)


def sign_on(path, url, body, headers, end_ms, keys):
    """Single sign-on, below /lend; keys: of the role."""
    if path == "sso/federation/credentials":
        token = headers.get("x-amz-sso_bearer_token")
        if token not in ("sso-access+1", "sso-access+2"):
            return 401, {"__type": "UnauthorizedException", "message": "Session token not found or invalid: " + str(token)}
        if urllib.parse.urlsplit(url).query != "account_id=111122223333&role_name=Data%20reader%2B":
            return 403, {"__type": "ForbiddenException", "message": "No access"}
        return 200, {"roleCredentials": {"accessKeyId": keys[0], "secretAccessKey": keys[1], "sessionToken": keys[2], "expiration": end_ms}}
    if path == "oidc/token":
        asked = json.loads(body)
        wanted = {"grantType": "refresh_token", "clientId": "sso-client", "clientSecret": "sso-client/secret", "refreshToken": "sso-refresh+1"}
        if asked != wanted or not re.match("application/json", headers.get("Content-Type", "")) or asked["refreshToken"] in refreshed:
            return 400, {"error": "invalid_grant", "error_description": "Bad: " + body}
        refreshed.add(asked["refreshToken"])
        return 200, {"accessToken": "sso-access+2", "expiresIn": 28800, "refreshToken": "sso-refresh+2", "tokenType": "Bearer"}
    return 404, {}
