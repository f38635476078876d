(* A charge: costs with counts. Its copies are played one by one, in any order and adaptively, and are
   bounded by powers of the costs' pairs, as a certificate multiplies them; and mechanisms that are
   charged so compose as if all copies had been registered together.
   docs/notes/certificates.md, docs/notes/setwise.md, Theorem A *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Groups Failing Pairs.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Charges.
Variable R : realFieldType.
Local Notation atoms := (atoms R).

Lemma profile_prodA (l m k : atoms) p q :
  profile (prod (prod l m) k) p q = profile (prod l (prod m k)) p q.
Proof.
rewrite !profile_prodC /over big_allpairs_dep /=; apply: eq_bigr => x _.
rewrite profile_prodC /over; apply: eq_bigr => y _ /=.
by rewrite !mulrA.
Qed.

Lemma profile_one (l : atoms) p q : profile (prod [:: (1, 1)] l) p q = profile l p q.
Proof. by rewrite profile_prodC /over big_seq1 !mulr1. Qed.

(* The n-th power of a pair: n independent copies of it. *)
Fixpoint power (l : atoms) n : atoms := if n is m.+1 then prod l (power l m) else [:: (1, 1)].

Lemma power_nneg l n : nneg l -> nneg (power l n).
Proof. by move=> l0; elim: n => [|n IH] /=; [rewrite /nneg /= ler01|apply: nneg_prod]. Qed.

Lemma power_whole l n : whole l -> whole (power l n).
Proof. by move=> l1; elim: n => [|n IH] /=; [rewrite /whole !big_seq1|apply: prod_whole]. Qed.

Variables (C : eqType) (pair : C -> atoms).
Hypothesis pair_nneg : forall c, nneg (pair c).
Hypothesis pair_whole : forall c, whole (pair c).

(* A charge: for each cost how many copies of it. *)
Definition charge := seq (C * nat).
Definition copies (F : charge) : seq C := flatten [seq nseq x.2 x.1 | x <- F].
Definition charged (F : charge) : atoms := foldr (fun x => prod (power (pair x.1) x.2)) [:: (1, 1)] F.

Lemma charged_nneg F : nneg (charged F).
Proof.
by elim: F => [|x F IH] /=; [rewrite /nneg /= ler01|apply: nneg_prod => //; apply: power_nneg].
Qed.

Lemma charged_whole F : whole (charged F).
Proof. by elim: F => [|x F IH] /=; [rewrite /whole !big_seq1|apply: prod_whole => //; apply: power_whole]. Qed.

(* All copies together are worth what the powers are. *)
Lemma together_copies F p q : profile (together pair (copies F)) p q = profile (charged F) p q.
Proof.
elim: F p q => [|[c n] F IH] p q //=.
elim: n p q => [|n IHn] p q /=; first by rewrite profile_one; apply: IH.
by rewrite profile_prodA; apply: profile_congr => a b; apply: IHn.
Qed.

Theorem charge_of_copies (D : Type) (nb : D -> D -> Prop) F
  (A : @analyst R C (by_pair pair) D nb (seq C) (@left_of C) (@leave C) (copies F)) d d' S u :
  nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + profile (charged F) 1 u.
Proof. by move=> dd' u0; rewrite -together_copies; apply: pairs_in_any_order. Qed.

(* With the mass of failures that a charge states besides its costs. *)
Theorem charge_with_failures (D : Type) (nb : D -> D -> Prop) F m
  (A : @analyst R (C * R) (with_failures (by_pair pair)) D nb (seq C * R) (may_fail (@left_of C))
     (next_fail (@leave C)) (copies F, m)) d d' S u :
  0 <= m -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + (profile (charged F) 1 u + m).
Proof. by move=> m0 dd' u0; rewrite -together_copies; apply: pairs_with_failures. Qed.

(* Charges join: that of both is the product. *)
Lemma charge_join F G p q : profile (charged (F ++ G)) p q = profile (prod (charged F) (charged G)) p q.
Proof.
elim: F p q => [|x F IH] p q /=; first by rewrite profile_one.
by rewrite profile_prodA; apply: profile_congr => a b; apply: IH.
Qed.

(* What is charged with copies is a cost like another, whose pair is the charge's. *)
Definition by_charge (F : charge) : class R := dominated (charged F).

(* A play of a charge's copies is worth at most its pair, at any weights. *)
Lemma charge_is_a_pair (D : Type) (nb : D -> D -> Prop) F
  (A : @analyst R C (by_pair pair) D nb (seq C) (@left_of C) (@leave C) (copies F)) d d' S p q :
  nb d d' -> 0 <= p -> 0 <= q -> p * Pr A d S <= q * Pr A d' S + profile (charged F) p q.
Proof.
move=> dd' p0 q0; rewrite -together_copies -ler_subl_addl.
have [fn f0 f1 fh fs] := pairs_family pair_nneg pair_whole.
exact: (every_play fn f0 f1 fh fs A S I dd' p0 q0).
Qed.

(* The outcomes of a play, taken together by a function of all that was seen, add up. *)
Lemma Pr_sum (D : Type) (nb : D -> D -> Prop) E
  (A : @analyst R C (by_pair pair) D nb (seq C) (@left_of C) (@leave C) E) d n (f : seq nat -> 'I_n)
  (G : pred 'I_n) : Pr A d (fun t => G (f t)) = \sum_(i | G i) Pr A d (fun t => f t == i).
Proof.
elim: A f => {E} [E|E m w k IH|E c m M cE Mc k IH] f /=.
- rewrite big_mkcond /= (bigD1 (f [::])) //= eqxx big1 ?addr0; first by case: (G _).
  by move=> i ne; rewrite eq_sym (negbTE ne); case: (G i).
- rewrite exchange_big /=; apply: eq_bigr => j _.
  by rewrite -mulr_sumr; congr (_ * _); apply: (IH j (fun t => f (nat_of_ord j :: t))).
rewrite exchange_big /=; apply: eq_bigr => j _.
by rewrite -mulr_sumr; congr (_ * _); apply: (IH j (fun t => f (nat_of_ord j :: t))).
Qed.

(* So what a mechanism shows of a play of a charge's copies has the charge as its cost. *)
Theorem a_play_has_its_charge (D : Type) (nb : D -> D -> Prop) F
  (A : @analyst R C (by_pair pair) D nb (seq C) (@left_of C) (@leave C) (copies F)) d d' n
  (f : seq nat -> 'I_n) (P Q : law R n) : nb d d' ->
  (forall i, P i = Pr A d (fun t => f t == i)) -> (forall i, Q i = Pr A d' (fun t => f t == i)) ->
  dominated (charged F) P Q.
Proof.
move=> dd' eP eQ p q p0 q0.
pose G := [pred i | q * Q i <= p * P i].
have -> : \sum_i hinge (p * P i) (q * Q i) = \sum_(i | G i) (p * P i - q * Q i).
  rewrite [RHS]big_mkcond /=; apply: eq_bigr => i _; rewrite /hinge.
  case: ifP => [h|/negbT]; first by apply/max_idPl; rewrite subr_ge0.
  by rewrite -ltNge => /ltW h; apply/max_idPr; rewrite subr_le0.
rewrite sumrB -!mulr_sumr.
under eq_bigr do rewrite eP.
under [X in _ - _ * X]eq_bigr do rewrite eQ.
by rewrite -!Pr_sum ler_subl_addl; apply: charge_is_a_pair.
Qed.

(* Mechanisms that are charged so, played in any order, each chosen from all that was seen, are bounded
   as all their copies together. *)
Lemma together_charges (E : seq charge) p q :
  profile (together charged E) p q = profile (charged (flatten E)) p q.
Proof.
elim: E p q => [|F E IH] p q //=; rewrite charge_join.
by apply: profile_congr => a b; apply: IH.
Qed.

Theorem charges_compose (D : Type) (nb : D -> D -> Prop) (E : seq charge)
  (A : @analyst R charge by_charge D nb (seq charge) (@left_of _) (@leave _) E) d d' S u :
  nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + profile (charged (flatten E)) 1 u.
Proof.
move=> dd' u0; rewrite -together_charges.
by apply: (pairs_in_any_order charged_nneg charged_whole).
Qed.
End Charges.
