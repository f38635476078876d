(* The slot lemma: labels that nobody knows beforehand cost what noise on slots costs, and the mass of
   a label that only one of two neighbours can show. Two phases: find labels, then count them.
   docs/notes/mechanisms.md, "The slot lemma"; docs/notes/two-phases.md *)
From mathcomp Require Import all_ssreflect all_algebra.
From dptopk Require Import Game Rounds Setwise Groups Failing Pairs.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.

Section Pairing.
(* Labels, and the order in which ties are broken, which does not look at the data. *)
Variables (L : finType) (rank : L -> nat).

(* x: counts without one user; v: what the user adds; x': counts with the user. *)
Variables (x v : L -> nat) (tau : nat).
Hypothesis v_tau : forall l, v l <= tau.
Definition x' l := x l + v l.

Definition before (y : L -> nat) l m := (y m < y l) || ((y m == y l) && (rank l < rank m)).
Definition top (y : L -> nat) (S : {set L}) := forall l m, l \in S -> m \notin S -> before y l m.
Definition floor (y : L -> nat) (S : {set L}) := \max_(m | m \notin S) y m.

(* The largest counts without and with the user: equally many slots. *)
Variables (S S' : {set L}).
Hypothesis S_top : top x S.
Hypothesis S'_top : top x' S'.
Hypothesis same_size : #|S| = #|S'|.

Lemma before_le y l m : before y l m -> y m <= y l.
Proof. by case/orP => [/ltnW//|/andP[/eqP -> _]]. Qed.

(* A label that enters the top was moved by the user. *)
Lemma slot_entered l m : l \in S -> l \notin S' -> m \in S' -> m \notin S -> 0 < v m.
Proof.
move=> lS lS' mS' mS; rewrite lt0n; apply/eqP => vm.
have lm := S_top lS mS; have ml := S'_top mS' lS'.
have e : x' m = x m by rewrite /x' vm addn0.
have h1 := before_le lm; have h2 := before_le ml; rewrite e in h2.
have h3 : x l <= x' l by rewrite leq_addr.
have e1 : x l = x m by apply/eqP; rewrite eqn_leq h1 (leq_trans h3 h2).
have e2 : x' l = x m by apply/eqP; rewrite eqn_leq h2 -{1}e1 h3.
move: lm ml; rewrite /before e e1 e2 ltnn eqxx /= => rl rm.
by move: (ltn_trans rl rm); rewrite ltnn.
Qed.

(* A displaced label and one that entered are one slot, whichever they are: it moves up, by at most
   what the user adds to the one that entered. *)
Lemma slot_moves l m : l \in S -> l \notin S' -> m \in S' -> m \notin S ->
  x l <= x' m <= x l + v m.
Proof.
move=> lS lS' mS' mS; apply/andP; split.
  apply: (@leq_trans (x' l)); first by rewrite leq_addr.
  exact: before_le (S'_top mS' lS').
by rewrite leq_add2r; apply: before_le (S_top lS mS).
Qed.

Lemma floor_ge (y : L -> nat) (U : {set L}) m : m \notin U -> y m <= floor y U.
Proof. by move=> mU; rewrite /floor (bigD1 m) //= leq_maxl. Qed.

(* The floor moves in the same direction, by at most tau. *)
Lemma slot_floor : floor x S <= floor x' S' <= floor x S + tau.
Proof.
apply/andP; split.
  apply/bigmax_leqP => m mS; case: (boolP (m \in S')) => mS'; last first.
    by apply: leq_trans (floor_ge _ mS'); rewrite leq_addr.
  (* m entered: some label left, and stands at or above m *)
  have [l /andP[lS lS']] : exists l, (l \in S) && (l \notin S').
    have : (0 < #|S :\: S'|)%N.
      have := cardsID S' S; have := cardsID S S'; rewrite setIC => e1 e2.
      have : (0 < #|S' :\: S|)%N by apply/card_gt0P; exists m; rewrite !inE mS mS'.
      by rewrite -(ltn_add2l #|S :&: S'|) addn0 e1 -same_size -e2 -[X in (X < _)%N]addn0 ltn_add2l.
    by case/card_gt0P => l; rewrite !inE => /andP[a b]; exists l; rewrite a b.
  apply: leq_trans (floor_ge x' lS').
  by apply: (leq_trans (before_le (S_top lS mS))); rewrite leq_addr.
apply/bigmax_leqP => m mS'; case: (boolP (m \in S)) => mS; last first.
  by rewrite /x' leq_add ?floor_ge.
have [l /andP[lS lS']] : exists l, (l \in S') && (l \notin S).
  have : (0 < #|S' :\: S|)%N.
    have := cardsID S' S; have := cardsID S S'; rewrite setIC => e1 e2.
    have : (0 < #|S :\: S'|)%N by apply/card_gt0P; exists m; rewrite !inE mS mS'.
    by rewrite -(ltn_add2l #|S :&: S'|) addn0 e2 same_size -e1 -[X in (X < _)%N]addn0 ltn_add2l.
  by case/card_gt0P => l; rewrite !inE => /andP[a b]; exists l; rewrite a b.
apply: (leq_trans (before_le (S'_top lS mS'))).
by rewrite /x' leq_add ?floor_ge.
Qed.

(* A special slot, of a label that is in one top only, stands at most tau above its floor. *)
Lemma slot_special_left l : l \in S -> l \notin S' -> x l <= floor x S + tau.
Proof.
move=> lS lS'.
apply: (@leq_trans (floor x' S')); last by case/andP: slot_floor.
by apply: leq_trans (floor_ge x' lS'); rewrite leq_addr.
Qed.

Lemma slot_special_entered m : m \in S' -> m \notin S -> x' m <= floor x' S' + tau.
Proof.
move=> mS' mS; apply: (@leq_trans (floor x S + tau)).
  by rewrite /x' leq_add ?floor_ge.
by rewrite leq_add2r; case/andP: slot_floor.
Qed.

(* The slots: a numbering of the two tops in which common labels agree. Slot m of S' holds the label
   [slot m] of S. *)
Definition slot m :=
  if m \in S then m else nth m (enum (S :\: S')) (index m (enum (S' :\: S))).

Lemma same_differences : #|S :\: S'| = #|S' :\: S|.
Proof.
apply/eqP; rewrite -(eqn_add2l #|S :&: S'|) cardsID setIC cardsID.
by rewrite same_size.
Qed.

Lemma index_small m : m \in S' -> m \notin S ->
  index m (enum (S' :\: S)) < size (enum (S :\: S')).
Proof.
move=> mS' mS; rewrite -cardE same_differences cardE index_mem mem_enum.
by rewrite !inE mS mS'.
Qed.

Lemma slot_displaced m : m \in S' -> m \notin S -> slot m \in S :\: S'.
Proof.
move=> mS' mS; rewrite /slot (negbTE mS) -mem_enum.
by apply: mem_nth; apply: index_small.
Qed.

Lemma slot_in m : m \in S' -> slot m \in S.
Proof.
move=> mS'; case: (boolP (m \in S)) => mS; first by rewrite /slot mS.
by have := slot_displaced mS' mS; rewrite inE => /andP[].
Qed.

Lemma slot_inj : {in S' &, injective slot}.
Proof.
move=> m k mS' kS'.
case: (boolP (m \in S)) => mS; case: (boolP (k \in S)) => kS.
- by rewrite /slot mS kS.
- have := slot_displaced kS' kS; rewrite inE => /andP[kout _] e.
  by move: kout; rewrite -e /slot mS mS'.
- have := slot_displaced mS' mS; rewrite inE => /andP[mout _] e.
  by move: mout; rewrite e /slot kS kS'.
rewrite /slot (negbTE mS) (negbTE kS) => e.
have im := index_small mS' mS; have ik := index_small kS' kS.
rewrite (set_nth_default k) // in e.
have same : index m (enum (S' :\: S)) = index k (enum (S' :\: S)).
  by apply/eqP; rewrite -(nth_uniq k im ik (enum_uniq _)) e.
have mE : m \in enum (S' :\: S) by rewrite mem_enum !inE mS mS'.
have kE : k \in enum (S' :\: S) by rewrite mem_enum !inE kS kS'.
by rewrite -(nth_index k mE) same (nth_index k kE).
Qed.

(* Each slot moves up by at most what the user adds to its new label: so slots move by at most tau
   each, at most as many as the user has labels, and by at most the user's total together. *)
Theorem slot_pairing m : m \in S' -> x (slot m) <= x' m <= x (slot m) + v m.
Proof.
move=> mS'; case: (boolP (m \in S)) => mS.
  by rewrite /slot mS /x' leq_addr leqnn.
by have := slot_displaced mS' mS; rewrite inE => /andP[oS iS]; apply: slot_moves.
Qed.

Corollary slot_total : \sum_(m in S') (x' m - x (slot m)) <= \sum_l v l.
Proof.
apply: (@leq_trans (\sum_(m in S') v m)).
  apply: leq_sum => m mS'; rewrite leq_subLR.
  by case/andP: (slot_pairing mS').
by rewrite [X in _ <= X](bigID (mem S')) /= leq_addr.
Qed.

Corollary slot_count : #|S' :\: S| <= #|[set l | 0 < v l]|.
Proof.
have [-> //|some] := posnP #|S' :\: S|.
have /card_gt0P[l] : (0 < #|S :\: S'|)%N by rewrite same_differences.
rewrite !inE => /andP[lS' lS].
apply: subset_leq_card; apply/subsetP => m; rewrite !inE => /andP[mS mS'].
exact: slot_entered lS lS' mS' mS.
Qed.
End Pairing.

Local Open Scope ring_scope.

Section Release.
Variable R : realFieldType.

(* What is shown is a function of the noisy slots; its law. *)
Definition push n k (f : 'I_n -> 'I_k) (P : law R n) (j : 'I_k) : R := \sum_(i | f i == j) P i.
Lemma push_law n k (f : 'I_n -> 'I_k) (P : law R n) : {l : law R k | forall j, l j = push f P j}.
Proof.
have ge j : 0 <= push f P j by apply: sumr_ge0 => i _; apply: pr_ge0.
have su : \sum_j push f P j = 1.
  by rewrite -(pr_sum P) (partition_big f predT).
by exists (Law ge su).
Qed.

(* A class that is closed under functions of the outcome, as DP and bounded range are. *)
Definition closed (cl : class R) := forall n k (f : 'I_n -> 'I_k) (P Q : law R n) (P1 Q1 : law R k),
  cl n P Q -> (forall j, P1 j = push f P j) -> (forall j, Q1 j = push f Q j) -> cl k P1 Q1.

Lemma DP_closed r : closed (@DP R r).
Proof.
move=> n k f P Q P1 Q1 H EP EQ j; rewrite EP EQ /push !mulr_sumr.
by split; apply: ler_sum => i _; case: (H i).
Qed.

Lemma BR_closed r : closed (@BR R r).
Proof.
move=> n k f P Q P1 Q1 [s H] EP EQ; exists s => j; rewrite EP EQ /push !mulr_sumr.
by split; apply: ler_sum => i _; case: (H i).
Qed.

(* P, Q: laws of the noisy slots under the two data sets, a pair of the class. [shown], [shown']: the
   answers that the two data sets read from the same noisy slots; they differ only in the names of
   special slots, so only where a special slot passes the threshold. *)
Theorem slot_release (cl : class R) n k (P Q : law R n) (shown shown' : 'I_n -> 'I_k)
  (special : pred 'I_n) (A A' : law R k) :
  closed cl -> cl n P Q -> (forall i, ~~ special i -> shown i = shown' i) ->
  (forall j, A j = push shown P j) -> (forall j, A' j = push shown' Q j) ->
  good_set cl (\sum_(i | special i) P i) A A'.
Proof.
move=> cc cPQ same EA EA'; have [B EB] := push_law shown' P.
exists B, A', (fun j => \sum_(i | special i && (shown i == j)) P i), predT; split.
- exact: cc cPQ EB EA'.
- by move=> j; apply: sumr_ge0 => i _; apply: pr_ge0.
- by rewrite (partition_big shown predT).
- move=> j _; split; last exact: lexx.
  rewrite EA EB /push (bigID special) /= addrC; apply: ler_add; last first.
    by rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigl => i; rewrite andbC.
  rewrite (eq_bigl (fun i => (shown' i == j) && ~~ special i)); last first.
    by move=> i; case: (boolP (special i)) => [_|ns]; rewrite ?andbF ?andbT ?(same _ ns).
  rewrite [X in _ <= X](bigID special) /= ler_addr.
  by apply: sumr_ge0 => i _; apply: pr_ge0.
by [].
Qed.
End Release.

(* Two phases: labels are found from capped counts, the coins of the cap being the users' own, and the
   finding may fail; what was found is counted by a mechanism of a cost that was fixed before. The two
   costs compose as if they had been registered together, the failures add up, the coins cost nothing. *)
Section TwoPhases.
Variables (R : realFieldType) (C : Type) (cls : C -> class R).
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T) (ok : T -> Prop) (W : T -> R -> R -> R).
Hypothesis W_family : family cls may next ok W.
Hypothesis W_regular : forall s, ok s -> regular (W s).

Variables (D : Type) (nb : D -> D -> Prop) (find count : C) (f1 f2 : R) (s : T).
Hypothesis s_ok : ok s.
Hypothesis first : may s find.
Hypothesis then_ : may (next s find) count.
Hypothesis f1_ge0 : 0 <= f1.
Hypothesis f2_ge0 : 0 <= f2.

Variables (coins n k : nat) (w : law R coins).
Variables (M1 : 'I_coins -> D -> law R n) (M2 : 'I_n -> D -> law R k).
Hypothesis M1_cost : forall j, has_cost (with_failures cls) nb (find, f1) (M1 j).
Hypothesis M2_cost : forall i, has_cost (with_failures cls) nb (count, f2) (M2 i).

Definition both d (S : nat -> nat -> bool) : R :=
  \sum_j w j * \sum_i M1 j d i * \sum_a M2 i d a * (S i a)%:R.

Theorem slot_two_phases d d' S u : nb d d' -> 0 <= u ->
  both d S <= u * both d' S + (W s 1 u + (f1 + f2)).
Proof.
move=> dd' u0; have m0 : 0 <= f1 + f2 by rewrite addr_ge0.
have left1 : may_fail may (s, f1 + f2) (find, f1) by split=> //=; rewrite ler_addl.
have left2 : may_fail may (next_fail next (s, f1 + f2) (find, f1)) (count, f2).
  by split=> //=; rewrite addrAC subrr add0r.
pose A := Toss (s := (s, f1 + f2)) w (fun j =>
  Ask left1 (M1_cost j) (fun i =>
  Ask left2 (M2_cost i) (fun _ => Stop (with_failures cls) nb (may_fail may) (next_fail next) _))).
pose S3 t := if t is [:: _; i; a] then S i a else false.
by have := failures W_family W_regular A S3 s_ok m0 dd' u0; rewrite /A /=.
Qed.
End TwoPhases.

(* With a dominating pair for each phase, whatever was found: the product of the two pairs. *)
Section TwoPairs.
Variables (R : realFieldType) (pair : bool -> atoms R) (D : Type) (nb : D -> D -> Prop) (f1 f2 : R).
Hypothesis pair_nneg : forall c, nneg (pair c).
Hypothesis pair_whole : forall c, whole (pair c).
Hypothesis f1_ge0 : 0 <= f1.
Hypothesis f2_ge0 : 0 <= f2.
Variables (coins n k : nat) (w : law R coins).
Variables (M1 : 'I_coins -> D -> law R n) (M2 : 'I_n -> D -> law R k).
Hypothesis M1_cost : forall j, has_cost (with_failures (by_pair pair)) nb (true, f1) (M1 j).
Hypothesis M2_cost : forall i, has_cost (with_failures (by_pair pair)) nb (false, f2) (M2 i).

Theorem slot_two_pairs d d' S u : nb d d' -> 0 <= u ->
  both w M1 M2 d S <= u * both w M1 M2 d' S + (profile (prod (pair true) (pair false)) 1 u + (f1 + f2)).
Proof.
move=> dd' u0.
have -> : profile (prod (pair true) (pair false)) 1 u = profile (together pair [:: true; false]) 1 u.
  rewrite /= !profile_prodC; apply: eq_bigr => x _.
  by rewrite profile_prod /over big_seq1 !mulr1.
have reg E : True -> regular (profile (together pair E)).
  by move=> _; apply: profile_regular; [apply: together_nneg|apply: together_whole].
have first : left_of [:: true; false] true by [].
have then_ : left_of (leave [:: true; false] true) false by [].
exact: (slot_two_phases (pairs_family pair_nneg pair_whole) reg I first then_ f1_ge0 f2_ge0 w
  M1_cost M2_cost S dd' u0).
Qed.
End TwoPairs.
